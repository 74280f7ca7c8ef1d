"""Ops of a backward pass that compute a forward pass again (activation checkpointing)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

# Of the FLOPs of a backward pass, what is recomputed at the most: of three parts one. More of them
# with nodes of autograd are those of a gradient that is differentiated again.
_MOST_OF_BACKWARD = 0.5


class SeenOp(NamedTuple):
    """What tells a recomputed op: ``nodes`` of autograd that it makes, its work in FLOPs."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    source: str
    phase: str
    nodes: int | None
    flops: float = 0.0


def recomputed(ops: Sequence[SeenOp]) -> frozenset[int]:
    """Places of the ops in the backward pass that repeat ops of the forward pass.

    They make nodes of autograd, which a backward pass that nobody goes back through does not, and
    the forward pass has the same op at the same line with the same shapes. Views among them make
    nothing; ops without a node (dropout's masks) that stand between two of them are left out.
    """
    forward = Counter(_key(op) for op in ops if op.phase == "forward")
    backward_flops = sum(op.flops for op in ops if op.phase == "backward")
    found: set[int] = set()
    left = Counter(forward)
    for place, op in enumerate(ops):
        if op.phase == "backward" and op.nodes and left[_key(op)] > 0:
            left[_key(op)] -= 1
            found.add(place)
    if sum(ops[place].flops for place in found) > _MOST_OF_BACKWARD * backward_flops:
        return frozenset()
    return frozenset(found)


def _key(op: SeenOp) -> tuple[str, tuple[tuple[int, ...], ...], str]:
    return op.name, op.shapes, op.source
