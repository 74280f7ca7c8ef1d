"""A captured step as ``torch.compile`` leaves it where its blocks communicate.

Each block is compiled by itself, forward and backward, and what stands between blocks as well: a
wrapper acts where a block begins and ends, and a collective is never inside a kernel. That is how
torchtitan compiles under FSDP2 (block by block), and about what ``torch.compile`` makes of DDP,
whose graph it breaks where buckets are full. The optimizer is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from gobrrr.prediction.mesh.ops import first_and_last
from gobrrr.roofline.compiled import compiled_kernels
from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import ModelFacts, OpGraph, StepOp
from gobrrr.work.estimate import Work

_PASSES = (Phase.FORWARD, Phase.BACKWARD)


@dataclass(frozen=True, slots=True)
class _Region:
    """Positions of ops that follow each other, and whether they are compiled."""

    positions: range
    compiled: bool


@dataclass(frozen=True, slots=True)
class CompiledStep:
    """A step with kernels in place of ops.

    Attributes:
        graph: of the kernels, and of the ops that are left.
        facts: of its model, in positions of that graph.
        works: of each kernel, by the identity of its call.
        entries: where compiled code is entered: the position of its first kernel, and how many
            trained tensors the code reads (forward) or has gradients for (backward).
    """

    graph: OpGraph
    facts: ModelFacts
    works: Mapping[int, Work | None]
    entries: Mapping[int, int]


def compiled_by_block(
    graph: OpGraph, facts: ModelFacts, multiprocessors: int | None
) -> CompiledStep:
    """The step with each block compiled.

    Args:
        graph: of the captured step, whose ops all run in one stream.
        facts: of its model.
        multiprocessors: of the device.
    """
    regions = _regions(graph.ops, facts.units)
    kept = _kept(graph, regions)
    ops: list[StepOp] = []
    works: dict[int, Work | None] = {}
    entries: dict[int, int] = {}
    gradients = {each.storage: each.gradient for each in facts.parameters}
    trained = {weight: made for weight, made in gradients.items() if made is not None}
    # As many ops have been issued when the one at this position has been.
    issued: list[int] = []
    for region, outside in zip(regions, kept):
        own = [graph.ops[at] for at in region.positions]
        if not region.compiled:
            ops += own
            issued += range(len(ops) - len(own) + 1, len(ops) + 1)
            continue
        first = len(ops)
        for kernel in compiled_kernels(own, outside, multiprocessors=multiprocessors):
            ops.append(kernel.step_op)
            works[id(kernel.call)] = kernel.work
        if len(ops) > first:
            entries[first] = _tensors(own, trained)
        issued += [len(ops)] * len(own)

    def moved(ready: int | None) -> int | None:
        return ready if not ready else issued[ready - 1]

    parameters = tuple(replace(each, ready=moved(each.ready)) for each in facts.parameters)
    made = replace(facts, parameters=parameters)
    return CompiledStep(replace(graph, ops=tuple(ops), model=made), made, works, entries)


def _tensors(ops: Sequence[StepOp], trained: Mapping[int, int]) -> int:
    """How many trained tensors the ops of a region read, or make the gradients of."""
    if ops[0].phase is Phase.BACKWARD:
        made = {spec.storage for op in ops for spec in op.call.outputs or ()}
        return sum(gradient in made for gradient in trained.values())
    read = {spec.storage for op in ops for spec in op.call.tensors}
    return len(read & trained.keys())


def _regions(ops: Sequence[StepOp], units: Sequence[str]) -> list[_Region]:
    """Blocks and what stands between them; what is no pass, and each collective, by itself."""
    block: dict[int, str] = {}
    for phase in _PASSES:
        for unit, positions in first_and_last(ops, units, phase).items():
            block.update(dict.fromkeys(positions, unit))

    def part(at: int) -> tuple[Phase, str, bool]:
        op = ops[at]
        compiled = op.phase in _PASSES and op.collective is None
        return op.phase, block.get(at, "") if compiled else "", compiled

    found = []
    for (_, _, compiled), group in groupby(range(len(ops)), key=part):
        own = list(group)
        found.append(_Region(range(own[0], own[-1] + 1), compiled))
    return found


def _kept(graph: OpGraph, regions: Sequence[_Region]) -> list[frozenset[int]]:
    """Of each region the storages that others read: what writes them stays."""
    readers: dict[int, set[int]] = {}
    written: list[set[int]] = []
    for number, region in enumerate(regions):
        made: set[int] = set()
        for op in graph.ops[region.positions.start : region.positions.stop]:
            for spec in op.call.tensors:
                if spec.storage is not None:
                    readers.setdefault(spec.storage, set()).add(number)
            made |= {spec.storage for spec in op.call.outputs or () if spec.storage is not None}
        written.append(made)
    return [
        graph.kept | {storage for storage in made if readers.get(storage, set()) - {number}}
        for number, made in enumerate(written)
    ]
