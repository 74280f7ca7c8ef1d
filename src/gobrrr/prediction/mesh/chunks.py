"""The parts that a pipeline divides a model into: which op and which parameter is of which.

Blocks are divided evenly, in the order of the forward pass; what stands before the first block (an
embedding) goes to the first part, what stands after the last (norm, logits, loss) to the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gobrrr.prediction.mesh.ops import first_and_last, inside
from gobrrr.timeline.data import Phase
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.graph import ModelFacts, OpGraph


@dataclass(frozen=True, slots=True)
class Chunks:
    """What belongs to which part of the model.

    Attributes:
        forward, backward: positions of the captured ops, by part.
        optimizer: positions of those that no pass runs.
        of_parameter: storage of a parameter -> its part.
        sent_bytes: of the activations that each part hands to the next.
    """

    forward: tuple[tuple[int, ...], ...]
    backward: tuple[tuple[int, ...], ...]
    optimizer: tuple[int, ...]
    of_parameter: Mapping[int, int]
    sent_bytes: tuple[int, ...]


def chunks_of(graph: OpGraph, facts: ModelFacts, count: int) -> Chunks:
    """The model in ``count`` parts.

    Raises:
        InputError: it has fewer blocks than parts.
    """
    blocks = first_and_last(graph.ops, facts.units, Phase.FORWARD)
    order = sorted(blocks, key=lambda name: blocks[name].start)
    if len(order) < count:
        raise InputError(
            f"a pipeline of {count} stages needs at least {count} blocks, and the model has "
            f"{len(order)}: blocks are the elements of its nn.ModuleList, nn.Sequential or "
            "nn.ModuleDict"
        )
    part = {name: at * count // len(order) for at, name in enumerate(order)}
    forward: list[list[int]] = [[] for _ in range(count)]
    backward: list[list[int]] = [[] for _ in range(count)]
    optimizer: list[int] = []
    here = 0
    left = len(order)
    seen: set[str] = set()
    back: int | None = None
    block_of = {
        module: next((name for name in order if inside(module, name)), None)
        for module in {op.module for op in graph.ops}
    }
    last_backward = max(
        (
            at for at, op in enumerate(graph.ops)
            if op.phase is Phase.BACKWARD and block_of[op.module]
        ),
        default=-1,
    )  # fmt: skip
    for at, op in enumerate(graph.ops):
        block = block_of[op.module]
        if op.phase is Phase.FORWARD:
            if block is not None:
                here = part[block]
                seen.add(block)
            elif len(seen) == left:
                here = count - 1
            forward[here].append(at)
        elif op.phase is Phase.BACKWARD:
            if block is not None:
                back = part[block]
            elif at > last_backward:
                back = 0
            backward[count - 1 if back is None else back].append(at)
        else:
            optimizer.append(at)
    owner = {at: chunk for chunk, positions in enumerate(forward) for at in positions}
    return Chunks(
        tuple(map(tuple, forward)),
        tuple(map(tuple, backward)),
        tuple(optimizer),
        _owners(graph, facts, owner),
        _sent(graph, owner, count),
    )


def _owners(graph: OpGraph, facts: ModelFacts, owner: Mapping[int, int]) -> dict[int, int]:
    """The part that reads each parameter first."""
    wanted = {each.storage for each in facts.parameters}
    found: dict[int, int] = {}
    for at, op in enumerate(graph.ops):
        if at not in owner:
            continue
        for spec in op.call.tensors:
            if spec.storage in wanted and spec.storage is not None:
                found.setdefault(spec.storage, owner[at])
    for each in facts.parameters:
        found.setdefault(each.storage, 0)
    return found


def _sent(graph: OpGraph, owner: Mapping[int, int], count: int) -> tuple[int, ...]:
    """Bytes that a later part reads and this one, or one before, made."""
    made: dict[int, int] = {}
    last: dict[int, int] = {}
    for at in sorted(owner):
        call = graph.ops[at].call
        for spec in call.tensors:
            if spec.storage in made and spec.storage is not None:
                last[spec.storage] = max(last.get(spec.storage, 0), owner[at])
        for spec in call.outputs or ():
            if spec.storage is not None and spec.storage not in graph.parameters:
                made.setdefault(spec.storage, owner[at])
    sent = [0] * count
    for storage, end in last.items():
        life = graph.lives.get(storage)
        size = life.n_bytes if life is not None else graph.sizes_bytes.get(storage, 0)
        for chunk in range(made[storage], end):
            sent[chunk] += size
    return tuple(sent)
