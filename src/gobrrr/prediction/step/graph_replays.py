"""CUDA graphs of a compiled step (``mode="reduce-overhead"``): which kernels one launch runs.

``torch.compile`` captures the kernels of a pass into a graph, copies the inputs of a call into the
memory that the graph was captured with (parameters, and what an earlier graph left, stay in place:
torch/_inductor/cudagraph_trees.py), and then launches it. What works on the host, copies from or to
it, or waits for it stands between two graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall, TensorSpec

COPY = "aten::_foreach_copy_"


@dataclass(frozen=True, slots=True)
class GraphedOps:
    """Ops of a step, a copy of inputs before each graph that has any among them.

    Attributes:
        ops: in order.
        graph: of each op the graph that it is in, from 1; 0 for none.
    """

    ops: tuple[StepOp, ...]
    graph: tuple[int, ...]


def graphed(
    ops: Sequence[StepOp], inputs: Collection[int], captures: Callable[[OpCall], bool]
) -> GraphedOps:
    """Ops of a compiled step in CUDA graphs: one for all before the backward pass, one for it.

    Args:
        ops: the kernels of the model in order, then the optimizer's.
        inputs: storages that existed before the step and are not parameters.
        captures: whether a graph can hold a call.
    """
    found: list[StepOp] = []
    numbers: list[int] = []
    # What lies where no graph has put it: data, and what is computed between graphs.
    outside: set[int | None] = set(inputs)
    graphs = 0
    for held, members in _runs(ops, captures):
        written = {spec.storage for op in members for spec in op.call.outputs or ()}
        if held:
            # A buffer or a cache that a graph writes stays in place.
            given = _given(members, outside - written)
            if given:
                found.append(_copied(given, members[0]))
                numbers.append(0)
            # A backward pass reads the copy.
            outside -= written | {spec.storage for spec in given}
            graphs += 1
        elif members[0].phase is not Phase.OPTIMIZER:
            outside |= written
        found += members
        numbers += [graphs if held else 0] * len(members)
    return GraphedOps(tuple(found), tuple(numbers))


def _runs(
    ops: Sequence[StepOp], captures: Callable[[OpCall], bool]
) -> Iterator[tuple[bool, list[StepOp]]]:
    """Ops that follow each other in one pass, and whether a graph holds them."""

    def kind(op: StepOp) -> tuple[bool, bool]:
        model = op.phase is not Phase.OPTIMIZER
        return model and captures(op.call), op.phase is Phase.BACKWARD

    for (held, _), members in groupby(ops, kind):
        yield held, list(members)


def _given(members: Sequence[StepOp], outside: Collection[int | None]) -> list[TensorSpec]:
    """What they read of it, on the device."""
    given: dict[int, TensorSpec] = {}
    for op in members:
        for spec in op.call.tensors:
            if spec.storage is not None and spec.storage in outside and spec.device != "cpu":
                before = given.get(spec.storage)
                if before is None or before.unique_elements < spec.unique_elements:
                    given[spec.storage] = spec
    return list(given.values())


def _copied(given: Sequence[TensorSpec], first: StepOp) -> StepOp:
    """Their copy: into storages of its own, which no op has."""
    sources = tuple(given)
    targets = tuple(replace(spec, storage=-1 - (spec.storage or 0)) for spec in sources)
    call = OpCall(COPY, (targets, sources, False), ())
    return StepOp(call, first.module, first.source, first.phase)
