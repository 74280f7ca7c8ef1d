"""A training step of a pipeline: the model's blocks on stages, its microbatches by a schedule.

The captured batch is one microbatch. Each stage's passes are replayed alone, then
all of them by the schedule (``models.pipeline_schedule``); the step of the first stage is put
together from its passes, with what it waits between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from gobrrr.models.host_lane import HostCosts
from gobrrr.models.pipeline_schedule import (
    PipelineTime,
    Schedule,
    StageTime,
    pipeline_time,
)
from gobrrr.prediction.costs import CostedOp, OpCost
from gobrrr.prediction.mesh import Mesh, MeshOptions, link_of, time_of
from gobrrr.prediction.mesh_chunks import Chunks, chunks_of
from gobrrr.prediction.mesh_costs import CostedMesh, Platform, communicates, cost_ops
from gobrrr.prediction.mesh_memory import RankMemory
from gobrrr.prediction.timeline import replayed
from gobrrr.timeline.data import Phase
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.graph import CollectiveCall, ModelFacts, OpGraph, Parameter, StepOp
from gobrrr.timeline.ops import Arg, OpCall, TensorSpec

# Parts of the model on each stage of an interleaved schedule, as torch's examples have it.
INTERLEAVED_CHUNKS = 2
GROUP = "pp"


@dataclass(frozen=True, slots=True)
class Stages:
    """The passes of a pipeline, its optimizer aside.

    Attributes:
        chunks: what belongs to which part of the model.
        sends: what each part hands to the next.
        ran: the passes of all stages.
        options: the mesh and its schedule.
    """

    chunks: Chunks
    sends: tuple[CollectiveCall, ...]
    ran: PipelineTime
    options: MeshOptions


@dataclass(frozen=True, slots=True)
class CostedPipeline(CostedMesh):
    """The step of the first stage.

    Attributes:
        waits: positions of the ops that stand for waiting.
        stages: all of them.
    """

    waits: frozenset[int]
    stages: Stages

    @property
    def ran(self) -> PipelineTime:
        """The passes of all stages."""
        return self.stages.ran

    @property
    def options(self) -> MeshOptions:
        """The mesh and its schedule."""
        return self.stages.options

    @property
    def assumptions(self) -> list[str]:
        """What is taken to hold, as sentences."""
        mesh, stages = self.options.mesh, self.options.mesh.pp
        parts = len(self.stages.chunks.forward)
        found = [
            f"A step is {self.options.microbatches} microbatches ({self.options.schedule}), each "
            f"as large as the program's batch; the model's blocks are divided evenly into {parts} "
            f"parts on {stages} stages. The report describes the first stage."
        ]
        if mesh.dp > 1:
            found.append(
                "Gradients are reduced over the copies after the last microbatch, without overlap "
                "with compute."
            )
        return found

    @property
    def record(self) -> dict[str, Any]:
        """What the diagnosis's source says of it, times in seconds."""
        return {
            "microbatches": self.options.microbatches,
            "schedule": str(self.options.schedule),
            "seconds": self.ran.seconds,
            "busy_s": list(self.ran.busy_s),
            "bubble_s": list(self.ran.bubble_s),
        }

    def scaled(self, low: float, high: float) -> tuple[list[CostedOp], list[CostedOp]]:
        """As of any mesh; what is waited for is other stages' kernels."""
        ends = CostedMesh.scaled(self, low, high)
        for ops, factor in zip(ends, (low, high)):
            for at in self.waits:
                op, cost = self.ops[at].op, self.ops[at].cost
                ops[at] = CostedOp(op, replace(cost, device_s=cost.device_s * factor))
        return ends


def pipelined(
    graph: OpGraph,
    facts: ModelFacts,
    plain: CostedMesh,
    platform: Platform,
    host: HostCosts,
    options: MeshOptions,
) -> CostedPipeline:
    """The step of the first stage.

    Args:
        graph: of the captured step: one microbatch, forward, backward and optimizer.
        facts: of its model.
        plain: the graph's ops with their costs.
        platform: devices and link.
        host: what launches cost it.
        options: the mesh: ``pp`` stages, copies (``dp``), tensor parallelism; the schedule.

    Raises:
        InputError: the model, the mesh or the schedule do not go together.
    """
    stages = run_stages(graph, facts, plain, platform, host, options)
    return first_stage(graph, facts, plain, platform, stages)


def run_stages(
    graph: OpGraph,
    facts: ModelFacts,
    plain: CostedMesh,
    platform: Platform,
    host: HostCosts,
    options: MeshOptions,
    known: dict[Any, float] | None = None,
) -> Stages:
    """The passes of all stages, by the schedule.

    Args and errors as ``pipelined``; ``known``: times of passes that were replayed before.
    """
    mesh, schedule = options.mesh, options.schedule
    if graph.wrapping is not None or communicates(graph):
        raise InputError(
            "the program calls collectives itself: a pipeline can only be predicted for one that "
            "does not"
        )
    if mesh.fsdp > 1:
        raise InputError("pp with fsdp cannot be predicted yet: give pp with dp and tp")
    if not any(op.phase is Phase.BACKWARD for op in graph.ops):
        raise InputError("a pipeline needs a training step, and this one has no backward pass")
    each_stage = INTERLEAVED_CHUNKS if schedule is Schedule.INTERLEAVED else 1
    chunks = chunks_of(graph, facts, mesh.pp * each_stage)
    ranks = mesh.ranks(GROUP)[:2]
    sends = tuple(CollectiveCall("send", size, GROUP, ranks) for size in chunks.sent_bytes)
    known = {} if known is None else known
    stage_times = [
        StageTime(
            seconds_of(plain.ops, chunks.forward[c], host, known),
            seconds_of(plain.ops, chunks.backward[c], host, known),
            time_of(sends[c], mesh, platform.device, platform.link).seconds if sends[c].n_bytes
            else 0.0,
        )
        for c in range(len(sends))
    ]  # fmt: skip
    ran = pipeline_time(stage_times, mesh.pp, options.microbatches, schedule)
    return Stages(chunks, sends, ran, options)


def seconds_of(
    ops: Sequence[CostedOp],
    positions: Sequence[int],
    host: HostCosts,
    known: dict[Any, float] | None = None,
) -> float:
    """How long these ops take by themselves, one microbatch after the other.

    ``known``: by what is replayed, what came of it: stages with the same blocks are alike.
    """
    own = [(ops[at].cost, ops[at].op) for at in positions]
    if not any(cost.kernels for cost, _ in own):
        return 0.0
    one = positions[0]
    same = tuple((cost, op.phase, op.stream, *(at - one for at in op.after)) for cost, op in own)
    known = {} if known is None else known
    if same not in known:
        known[same] = float(replayed(_subset(ops, positions), host).ops.end_s.max())
    return known[same]


def update_seconds(
    graph: OpGraph, facts: ModelFacts, stages: Stages, platform: Platform, host: HostCosts
) -> float:
    """What comes after the passes of the first stage: its gradients reduced, its optimizer."""
    mesh = stages.options.mesh
    ops = _optimizer(graph, facts, stages.chunks, mesh, platform)
    update_s = seconds_of(ops, range(len(ops)), host)
    call = _reduced(facts, stages)
    if call is None:
        return update_s
    return update_s + time_of(call, mesh, platform.device, platform.link).seconds


def _subset(ops: Sequence[CostedOp], positions: Sequence[int], offset: int = 0) -> list[CostedOp]:
    """Some of the ops in their order; what they wait for among themselves is kept."""
    place = {at: offset + number for number, at in enumerate(positions)}
    return [
        replace(
            ops[at],
            op=replace(
                ops[at].op,
                after=tuple(place[other] for other in ops[at].op.after if other in place),
            ),
        )
        for at in positions
    ]


def first_stage(
    graph: OpGraph, facts: ModelFacts, plain: CostedMesh, platform: Platform, stages: Stages
) -> CostedPipeline:
    """The step of the first stage, put together from its passes; arguments as of ``pipelined``."""
    mesh, chunks, sends, ran = stages.options.mesh, stages.chunks, stages.sends, stages.ran
    gradients = _gradients(facts, stages)
    ops: list[CostedOp] = []
    waits: set[int] = set()
    times = {**plain.times}
    now = 0.0
    summed: set[int] = set()
    adding = {}
    for chunk in range(0, len(sends), mesh.pp):
        of_chunk = [each for each in gradients if chunks.of_parameter[each.storage] == chunk]
        adding[chunk] = _costed(graph, [_added(graph, of_chunk)], mesh, platform)

    def wait(until: float, call: CollectiveCall, phase: Phase) -> None:
        nonlocal now
        if until > now:
            times[call] = time_of(call, mesh, platform.device, platform.link)
            waits.add(len(ops))
            ops.append(_waiting(call, until - now, phase, link_of(call, mesh)))
        now = max(now, until)

    for each in ran.stages[0]:
        one = each.one
        came_by = sends[one.chunk if one.backward else max(one.chunk - 1, 0)]
        wait(each.begin_s, came_by, Phase.BACKWARD if one.backward else Phase.FORWARD)
        positions = (chunks.backward if one.backward else chunks.forward)[one.chunk]
        ops += _subset(plain.ops, positions, len(ops))
        now = each.end_s
        if one.backward:
            if one.chunk in summed:
                ops += adding[one.chunk]
            summed.add(one.chunk)
    call = _reduced(facts, stages)
    if call is not None:
        times[call] = time_of(call, mesh, platform.device, platform.link)
        ops.append(_waiting(call, times[call].seconds, Phase.BACKWARD, link_of(call, mesh)))
    wait(ran.seconds, sends[0], Phase.BACKWARD)
    ops += _optimizer(graph, facts, chunks, mesh, platform)
    return CostedPipeline(tuple(ops), times, plain.notices, frozenset(waits), stages)


def _gradients(facts: ModelFacts, stages: Stages) -> list[Parameter]:
    """Parameters of the first stage that are trained."""
    owner, pp = stages.chunks.of_parameter, stages.options.mesh.pp
    return [
        each for each in facts.parameters
        if each.ready is not None and owner[each.storage] % pp == 0
    ]  # fmt: skip


def _reduced(facts: ModelFacts, stages: Stages) -> CollectiveCall | None:
    """What copies of the first stage reduce when all microbatches are done."""
    mesh = stages.options.mesh
    size = sum(each.n_bytes for each in _gradients(facts, stages))
    if mesh.dp == 1 or not size:
        return None
    return CollectiveCall("all_reduce", size, "dp", mesh.ranks("dp"))


def _waiting(call: CollectiveCall, seconds: float, phase: Phase, link: str) -> CostedOp:
    op = StepOp(OpCall(f"c10d::{call.kind}", (), ()), phase=phase, collective=call)
    cost = OpCost(
        op.call, work=None, roof=None, device_s=seconds, fixed_s=0.0, kernels=1, host_calls=1,
        link=link,
    )  # fmt: skip
    return CostedOp(op, cost)


def _costed(
    graph: OpGraph, ops: Sequence[StepOp], mesh: Mesh, platform: Platform
) -> tuple[CostedOp, ...]:
    return cost_ops(replace(graph, ops=tuple(ops)), mesh, platform).ops


def _added(graph: OpGraph, parameters: Sequence[Parameter]) -> StepOp:
    """A microbatch's gradients, added to those of the ones before."""
    device = next((s.device for op in graph.ops for s in op.call.tensors if s.device != "cpu"), "")
    sums = tuple(
        TensorSpec(each.shape, each.dtype, None, each.gradient, device, 0) for each in parameters
    )
    new = tuple(replace(each, storage=None) for each in sums)
    return StepOp(OpCall("aten::_foreach_add_", (sums, new, 1), ()), phase=Phase.BACKWARD)


def _optimizer(
    graph: OpGraph, facts: ModelFacts, chunks: Chunks, mesh: Mesh, platform: Platform
) -> tuple[CostedOp, ...]:
    """The optimizer's ops on the first stage's parameters.

    Of an operator on lists the entries of these parameters are left; an operator on one tensor is
    left if what it meets is of such a parameter, or if the one before it was.
    """
    trained = [each for each in facts.parameters if each.ready is not None]
    owner = {each.storage: chunks.of_parameter[each.storage] % mesh.pp for each in trained}
    for each in trained:
        if each.gradient is not None:
            owner[each.gradient] = owner[each.storage]
    by_place = [owner[each.storage] == 0 for each in trained]
    kept: list[StepOp] = []
    here = True
    for at in chunks.optimizer:
        op = graph.ops[at]
        if any(isinstance(arg, tuple) and len(arg) == len(trained) for arg in op.call.args):
            kept.append(replace(op, call=_left(op.call, by_place)))
            continue
        met = [owner[s.storage] for s in op.call.tensors if s.storage in owner]
        here = met[0] == 0 if met else here
        if here:
            kept.append(op)
    return _costed(graph, [replace(op, stream=0, after=()) for op in kept], mesh, platform)


def _left(call: OpCall, by_place: Sequence[bool]) -> OpCall:
    def of(arg: Arg) -> Arg:
        if isinstance(arg, tuple) and len(arg) == len(by_place):
            return tuple(item for item, left in zip(arg, by_place) if left)
        return arg

    outputs = call.outputs
    if outputs is not None and len(outputs) == len(by_place):
        outputs = tuple(item for item, left in zip(outputs, by_place) if left)
    return OpCall(call.name, tuple(map(of, call.args)), outputs, call.overload)


def stage_memory(
    whole: RankMemory, graph: OpGraph, facts: ModelFacts, pipeline: Stages
) -> RankMemory:
    """Of the first stage: its parameters' part, and activations of microbatches in flight.

    An approximation: activations by the stage's part of what its forward pass makes. Gradients of
    one microbatch are there while the next one runs.
    """
    chunks, stages = pipeline.chunks, pipeline.options.mesh.pp
    total = sum(each.n_bytes for each in facts.parameters) or 1
    mine = sum(
        each.n_bytes for each in facts.parameters
        if chunks.of_parameter[each.storage] % stages == 0
    ) / total  # fmt: skip

    def made(parts: Iterable[int]) -> int:
        found = 0
        for part in parts:
            for at in chunks.forward[part]:
                found += sum(spec.unique_bytes or 0 for spec in graph.ops[at].call.outputs or ())
        return found

    each_stage = len(chunks.forward) // stages
    part = made(range(0, len(chunks.forward), stages)) / (made(range(len(chunks.forward))) or 1)
    kept = 0
    if pipeline.options.microbatches > 1:
        kept = sum(
            each.n_bytes
            for each in facts.parameters
            if each.ready is not None and chunks.of_parameter[each.storage] % stages == 0
        )
    in_flight = pipeline.ran.in_flight[0]
    return RankMemory(
        ceil(whole.weights * mine),
        max(ceil(whole.gradients * mine), kept),
        ceil(whole.optimizer * mine),
        ceil(whole.activations * part * in_flight / each_stage),
        ceil(whole.buffers * mine),
    )
