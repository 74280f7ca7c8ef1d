"""What a stage of a pipeline does beside its passes: gradients added up, reduced, optimizer run.

A stage waits for no other one there, as in torch's schedules, where each process calls its own
optimizer after the schedule's step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from gobrrr.prediction.mesh.chunks import Chunks
from gobrrr.prediction.mesh.costs import Platform, cost_ops
from gobrrr.prediction.mesh.mesh import Mesh, time_of
from gobrrr.prediction.mesh.ops import device_of
from gobrrr.prediction.mesh.parts import seconds_of
from gobrrr.prediction.mesh.shards import ShardedStages
from gobrrr.prediction.step.costs import CostedOp
from gobrrr.prediction.step.host_calls import begun
from gobrrr.prediction.step.host_lane import HostCosts
from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import CollectiveCall, ModelFacts, OpGraph, Parameter, StepOp
from gobrrr.timeline.ops import Arg, OpCall, TensorSpec


@dataclass(frozen=True, slots=True)
class StageUpdate:
    """What one stage does after its passes.

    Attributes:
        reduced: what its copies reduce; ``None`` where there is one copy, or no gradient, or where
            parameters are sharded.
        reduce_s: seconds of that.
        optimizer_s: seconds of the optimizer on the stage's parameters.
    """

    reduced: CollectiveCall | None
    reduce_s: float
    optimizer_s: float

    @property
    def seconds(self) -> float:
        """Of both, one after the other."""
        return self.reduce_s + self.optimizer_s


def stage_updates(
    graph: OpGraph,
    facts: ModelFacts,
    chunks: Chunks,
    mesh: Mesh,
    platform: Platform,
    host: HostCosts,
    shards: ShardedStages | None = None,
) -> tuple[StageUpdate, ...]:
    """Of every stage, first to last.

    Args:
        graph: of the captured step.
        facts: of its model.
        chunks: what belongs to which part of the model; part c is on stage c modulo ``mesh.pp``.
        mesh: of all devices.
        platform: devices and link.
        host: what launches cost it.
        shards: of each stage's parameters; ``None`` where each copy has them whole.

    Raises:
        InputError: copies of a stage are on several hosts, and the link was not given.
    """
    # Stages with the same parameters run the same optimizer; the first one prepares the batch too.
    known: dict[Any, float] = {}
    found = []
    for stage in range(mesh.pp):
        own = gradients_of(facts, chunks, mesh, stage)
        same = (stage == 0, *((each.shape, each.dtype) for each in own))
        if same not in known:
            update = graph if shards is None else shards.graph
            ops = optimizer_of(update, facts, chunks, mesh, platform, stage)
            known[same] = seconds_of(ops, range(len(ops)), host)
        call = _reduced(own, mesh, stage)
        reduce_s = 0.0
        if shards is not None:
            scatters = [part.reduce.ops for part in shards.parts[stage :: mesh.pp]]
            reduce_s = sum(seconds_of(ops, range(len(ops)), host, known) for ops in scatters)
        elif call is not None:
            reduce_s = time_of(call, mesh, platform.device, platform.link).seconds
        found.append(StageUpdate(call, reduce_s, known[same]))
    return tuple(found)


def gradients_of(facts: ModelFacts, chunks: Chunks, mesh: Mesh, stage: int) -> list[Parameter]:
    """Parameters of a stage that are trained."""
    owner = chunks.of_parameter
    return [
        each for each in facts.parameters
        if each.ready is not None and owner[each.storage] % mesh.pp == stage
    ]  # fmt: skip


def adding_of(
    graph: OpGraph, facts: ModelFacts, chunks: Chunks, part: int, mesh: Mesh, platform: Platform
) -> tuple[CostedOp, ...]:
    """A microbatch's gradients of one part of the model, added to those of the ones before."""
    own = [
        each for each in facts.parameters
        if each.ready is not None and chunks.of_parameter[each.storage] == part
    ]  # fmt: skip
    if not own:
        return ()
    device = device_of(graph.ops)
    sums = tuple(TensorSpec(each.shape, each.dtype, None, each.gradient, device, 0) for each in own)
    new = tuple(replace(each, storage=None) for each in sums)
    call = OpCall("aten::_foreach_add_", (sums, new, 1), ())
    return cost_ops(replace(graph, ops=(StepOp(call, phase=Phase.BACKWARD),)), mesh, platform).ops


def _reduced(gradients: Sequence[Parameter], mesh: Mesh, stage: int) -> CollectiveCall | None:
    """What copies of a stage reduce when all microbatches are done."""
    size = sum(each.n_bytes for each in gradients)
    if mesh.dp == 1 or mesh.fsdp > 1 or not size:
        return None
    before = stage * (mesh.devices // mesh.pp)
    ranks = tuple(before + rank for rank in mesh.ranks("dp"))
    return CollectiveCall("all_reduce", size, "dp", ranks)


def optimizer_of(
    graph: OpGraph, facts: ModelFacts, chunks: Chunks, mesh: Mesh, platform: Platform, stage: int
) -> tuple[CostedOp, ...]:
    """The optimizer's ops on one stage's parameters.

    Of an operator on lists the entries of these parameters are left; an operator on one tensor is
    left if what it meets is of such a parameter, or if the one before it was. What stands before
    them all (a batch being prepared) is the first stage's.
    """
    trained = [each for each in facts.parameters if each.ready is not None]
    owner = {each.storage: chunks.of_parameter[each.storage] % mesh.pp for each in trained}
    for each in trained:
        if each.gradient is not None:
            owner[each.gradient] = owner[each.storage]
    # Of lists by their length: of a group's parameters, of all of them. Lists of an optimizer's
    # state are as long as that of their parameters, which comes before them.
    places = {len(trained): [owner[each.storage] == stage for each in trained]}
    kept: list[StepOp] = []
    here = stage == 0
    for at in chunks.optimizer:
        op = graph.ops[at]
        lists = [arg for arg in op.call.args if _is_list(arg)]
        for arg in lists:
            owners = [owner[item.storage] for item in arg if item.storage in owner]
            if len(owners) == len(arg):
                places[len(arg)] = [each == stage for each in owners]
        by_place = next((places[len(arg)] for arg in lists if len(arg) in places), None)
        if by_place is not None:
            if any(by_place):
                kept.append(replace(op, call=_left(op.call, by_place)))
            continue
        met = [owner[s.storage] for s in op.call.tensors if s.storage in owner]
        here = met[0] == stage if met else here
        if here:
            kept.append(op)
    ops = tuple(replace(op, stream=0, after=()) for op in kept)
    return tuple(begun(cost_ops(replace(graph, ops=ops), mesh, platform).ops))


def _is_list(arg: Arg) -> TypeGuard[tuple[TensorSpec, ...]]:
    return isinstance(arg, tuple) and bool(arg) and all(isinstance(i, TensorSpec) for i in arg)


def _left(call: OpCall, by_place: Sequence[bool]) -> OpCall:
    def of(arg: Arg) -> Arg:
        if _is_list(arg) and len(arg) == len(by_place):
            return tuple(item for item, left in zip(arg, by_place) if left)
        return arg

    outputs = call.outputs
    if outputs is not None and len(outputs) == len(by_place):
        outputs = tuple(item for item, left in zip(outputs, by_place) if left)
    return OpCall(call.name, tuple(map(of, call.args)), outputs, call.overload)
