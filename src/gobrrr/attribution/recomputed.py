"""Ops of a backward pass that compute a forward pass again (activation checkpointing)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from gobrrr.timeline.data import PHASE_NAMES
from gobrrr.timeline.graph import StepOp

# Of the ops of a backward pass that record gradients, those that the forward pass has too: all but
# a few where it is computed again, few where a gradient is to be differentiated.
_OF_FORWARD = 0.9
# What keeps tensors for the backward pass; the forward pass that is not to be kept has none.
_KEEPING = ("aten::detach", "aten::alias")


class SeenOp(NamedTuple):
    """What tells a recomputed op. ``records``: gradients were recorded while it ran."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    phase: str
    records: bool


def seen(op: StepOp) -> SeenOp:
    """What tells of an op of a step."""
    shapes = tuple(spec.shape for spec in op.call.tensors)
    return SeenOp(op.call.name, shapes, PHASE_NAMES[op.phase], op.records)


def recomputed(ops: Sequence[SeenOp]) -> frozenset[int]:
    """Places of the ops in the backward pass that repeat ops of the forward pass.

    A backward pass records no gradients, unless it computes something again or is itself to be
    differentiated (``create_graph``); in the latter it has ops of its own.
    """
    left = Counter((op.name, op.shapes) for op in ops if op.phase == "forward")
    recording = [
        place
        for place, op in enumerate(ops)
        if op.phase == "backward" and op.records and op.name not in _KEEPING
    ]
    found: set[int] = set()
    for place in recording:
        key = ops[place].name, ops[place].shapes
        if left[key] > 0:
            left[key] -= 1
            found.add(place)
    return frozenset(found) if len(found) >= _OF_FORWARD * len(recording) else frozenset()
