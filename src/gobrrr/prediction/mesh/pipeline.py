"""A training step of a pipeline: the model's blocks on stages, its microbatches by a schedule.

The captured batch is one microbatch. Each stage's passes are replayed alone, then
all of them by the schedule (``mesh.pipeline_schedule``); the step of the first stage is put
together from its passes, with what it waits between them, its update, and what it waits for the
slowest stage's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gobrrr.prediction.mesh.chunks import Chunks, chunks_of
from gobrrr.prediction.mesh.costs import CostedMesh, Platform, communicates
from gobrrr.prediction.mesh.mesh import Mesh, MeshOptions, link_of, time_of
from gobrrr.prediction.mesh.parts import part_of, seconds_of
from gobrrr.prediction.mesh.pipeline_schedule import (
    PipelineTime,
    Schedule,
    StageTime,
    pipeline_time,
)
from gobrrr.prediction.mesh.shards import ShardedStages, sharded_stages
from gobrrr.prediction.mesh.update import (
    StageUpdate,
    adding_of,
    optimizer_of,
    stage_updates,
)
from gobrrr.prediction.step.costs import CostedOp, OpCost
from gobrrr.prediction.step.host_calls import beginning
from gobrrr.prediction.step.host_lane import HostCosts
from gobrrr.prediction.step.timeline import replayed
from gobrrr.timeline.data import Phase
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.graph import CollectiveCall, ModelFacts, OpGraph, StepOp
from gobrrr.timeline.ops import OpCall

# Parts of the model on each stage of an interleaved schedule, as torch's examples have it.
INTERLEAVED_CHUNKS = 2
GROUP = "pp"
# A step that is this much shorter than its passes, as a share, is as long; and how often it is
# replayed until it is.
_AS_LONG, _MOST_REPLAYS = 1e-3, 8


@dataclass(frozen=True, slots=True)
class Stages:
    """The passes of a pipeline, and what each of its stages does after them.

    Attributes:
        chunks: what belongs to which part of the model.
        sends: what each part hands to the next, with its own two ranks.
        ran: the passes of all stages.
        updates: what follows on each stage.
        options: the mesh and its schedule.
        shards: of the stages' parameters; ``None`` where each copy has them whole.
    """

    chunks: Chunks
    sends: tuple[CollectiveCall, ...]
    ran: PipelineTime
    updates: tuple[StageUpdate, ...]
    options: MeshOptions
    shards: ShardedStages | None = None

    @property
    def ended_s(self) -> tuple[float, ...]:
        """When each stage has updated its parameters, in seconds from the step's begin."""
        return tuple(
            passes[-1].end_s + update.seconds
            for passes, update in zip(self.ran.stages, self.updates)
        )

    @property
    def seconds(self) -> float:
        """The step: until the slowest stage has updated its parameters."""
        return max(self.ended_s)

    @property
    def slowest(self) -> int:
        """The stage that is done last; the first is 0."""
        return self.ended_s.index(self.seconds)


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
            f"parts on {stages} stages. The report describes the first stage, and the memory of "
            "the stage that needs most."
        ]
        if mesh.fsdp > 1:
            found.append(_of_shards(mesh, self.options.schedule))
        elif mesh.dp > 1:
            found.append(
                "Gradients are reduced over the copies after the last microbatch, without overlap "
                "with compute."
            )
        return found

    @property
    def record(self) -> dict[str, Any]:
        """What the diagnosis's source says of it: seconds, of passes and by stage."""
        return {
            "microbatches": self.options.microbatches,
            "schedule": str(self.options.schedule),
            "seconds": self.ran.seconds,
            "busy_s": list(self.ran.busy_s),
            "bubble_s": list(self.ran.bubble_s),
            "update_s": [each.seconds for each in self.stages.updates],
            "slowest_stage": self.stages.slowest,
        }

    def scaled(self, low: float, high: float) -> tuple[list[CostedOp], list[CostedOp]]:
        """As of any mesh; what is waited for is other stages' kernels."""
        ends = CostedMesh.scaled(self, low, high)
        for ops, factor in zip(ends, (low, high)):
            for at in self.waits:
                one = self.ops[at]
                cost = replace(one.cost, device_s=one.cost.device_s * factor)
                ops[at] = replace(one, cost=cost)
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
        options: the mesh: ``pp`` stages, copies (``dp``), shards (``fsdp``), tensor parallelism;
            the schedule.

    Raises:
        InputError: the model, the mesh or the schedule do not go together.
    """
    stages = run_stages(graph, facts, plain, platform, host, options)
    return first_stage(graph, facts, plain, platform, stages, host)


def run_stages(
    graph: OpGraph,
    facts: ModelFacts,
    plain: CostedMesh,
    platform: Platform,
    host: HostCosts,
    options: MeshOptions,
    known: dict[Any, float] | None = None,
) -> Stages:
    """All stages: their passes by the schedule, and their updates.

    Args and errors as ``pipelined``; ``known``: times of passes that were replayed before.
    """
    mesh, schedule = options.mesh, options.schedule
    if graph.wrapping is not None or communicates(graph):
        raise InputError(
            "the program calls collectives itself: a pipeline can only be predicted for one that "
            "does not"
        )
    if not any(op.phase is Phase.BACKWARD for op in graph.ops):
        raise InputError("a pipeline needs a training step, and this one has no backward pass")
    each_stage = INTERLEAVED_CHUNKS if schedule is Schedule.INTERLEAVED else 1
    chunks = chunks_of(graph, facts, mesh.pp * each_stage)
    sends = tuple(
        CollectiveCall("send", size, GROUP, ends_of(mesh, c))
        for c, size in enumerate(chunks.sent_bytes)
    )
    known = {} if known is None else known
    plain = _with_passes(plain, chunks)
    shards = None
    if mesh.fsdp > 1:
        shards = sharded_stages(graph, facts, plain, chunks, mesh, platform)
    stage_times = []
    for c, send in enumerate(sends):
        forward_s = seconds_of(plain.ops, chunks.forward[c], host, known)
        backward_s = seconds_of(plain.ops, chunks.backward[c], host, known)
        send_s = 0.0
        if send.n_bytes:
            send_s = time_of(send, mesh, platform.device, platform.link).seconds
        first_s = None
        if shards is not None:
            first = shards.parts[c].forward.ops
            first_s = seconds_of(first, range(len(first)), host, known)
        adding = adding_of(graph, facts, chunks, c, mesh, platform)
        add_s = seconds_of(adding, range(len(adding)), host, known)
        stage_times.append(StageTime(forward_s, backward_s, send_s, first_s, add_s))
    ran = pipeline_time(stage_times, mesh.pp, options.microbatches, schedule)
    updates = stage_updates(graph, facts, chunks, mesh, platform, host, shards)
    return Stages(chunks, sends, ran, updates, options, shards)


def _with_passes(plain: CostedMesh, chunks: Chunks) -> CostedMesh:
    """The ops, with what the host does before each part's backward pass."""
    ops = list(plain.ops)
    for positions in chunks.backward:
        if positions:
            ops[positions[0]] = beginning(ops[positions[0]])
    return replace(plain, ops=tuple(ops))


def ends_of(mesh: Mesh, part: int) -> tuple[int, int]:
    """A rank that hands on what a part of the model has made, and the one that gets it.

    Each rank of a stage sends to its like on the next stage, at the same time; the stage goes on
    when all have arrived, so these are two of different hosts where there are any.
    """
    of_stage = mesh.devices // mesh.pp
    here, there = part % mesh.pp * of_stage, (part + 1) % mesh.pp * of_stage
    pairs = ((here + rank, there + rank) for rank in range(of_stage))
    return next((pair for pair in pairs if mesh.hosts_of(pair) > 1), (here, there))


def first_stage(
    graph: OpGraph,
    facts: ModelFacts,
    plain: CostedMesh,
    platform: Platform,
    stages: Stages,
    host: HostCosts,
) -> CostedPipeline:
    """The step of the first stage, put together from its passes; arguments as of ``pipelined``."""
    mesh, chunks, sends, ran = stages.options.mesh, stages.chunks, stages.sends, stages.ran
    plain = _with_passes(plain, chunks)
    ops: list[CostedOp] = []
    waits: set[int] = set()
    times = {**plain.times}
    parts = () if stages.shards is None else stages.shards.parts
    for part in parts[:: mesh.pp]:
        times |= {**part.forward.times, **part.reduce.times}
    now = 0.0
    summed: set[int] = set()
    adding = {
        chunk: adding_of(graph, facts, chunks, chunk, mesh, platform)
        for chunk in range(0, len(sends), mesh.pp)
    }

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
        if parts and not one.backward and one.microbatch == 0:
            first = parts[one.chunk].forward.ops
            ops += part_of(first, range(len(first)), ops)
        else:
            positions = (chunks.backward if one.backward else chunks.forward)[one.chunk]
            ops += part_of(plain.ops, positions, ops)
        now = each.end_s
        if one.backward:
            if one.chunk in summed:
                ops += adding[one.chunk]
            summed.add(one.chunk)
    update = stages.updates[0]
    if update.reduced is not None:
        times[update.reduced] = time_of(update.reduced, mesh, platform.device, platform.link)
        link = link_of(update.reduced, mesh)
        ops.append(_waiting(update.reduced, update.reduce_s, Phase.BACKWARD, link))
    for part in parts[:: mesh.pp]:
        reduce = part_of(part.reduce.ops, range(len(part.reduce.ops)), ops)
        ops += _after_all_streams(reduce, ops)
    of_update = graph if stages.shards is None else stages.shards.graph
    # What was scattered in other streams is there when the optimizer begins.
    ops += _after_all_streams(optimizer_of(of_update, facts, chunks, mesh, platform, 0), ops)
    now += update.seconds
    wait(stages.seconds, sends[0], Phase.OPTIMIZER)
    # The host of this stage is ahead after each wait, and its passes are shorter than alone; that
    # of the slowest stage, which decides how long the step is, has no waits to be ahead in. Nor is
    # a wait that is added here all added to the step: the next one's launches hide behind it.
    for _ in range(_MOST_REPLAYS):
        now = float(replayed(ops, host).ops.end_s.max())
        if now >= stages.seconds * (1 - _AS_LONG):
            break
        wait(stages.seconds, sends[0], Phase.OPTIMIZER)
    return CostedPipeline(tuple(ops), times, plain.notices, frozenset(waits), stages)


def _after_all_streams(ops: Sequence[CostedOp], before: Sequence[CostedOp]) -> Sequence[CostedOp]:
    """The first of the ops waits for the last op of each other stream that ran before."""
    if not ops:
        return ops
    last = {one.op.stream: at for at, one in enumerate(before)}
    last.pop(ops[0].op.stream, None)
    after = tuple(sorted({*ops[0].op.after, *last.values()}))
    return [replace(ops[0], op=replace(ops[0].op, after=after)), *ops[1:]]


def _of_shards(mesh: Mesh, schedule: Schedule) -> str:
    copies = f", then reduced over {mesh.dp} copies" if mesh.dp > 1 else ""
    return (
        "FSDP2: each stage's blocks are gathered in the first microbatch's forward pass and stay "
        "gathered (reshard_after_forward=False, as torchtitan sets it under a pipeline); gradients "
        "are scattered after the last backward pass, with nothing beside it, as "
        f"torch.distributed.pipelining does{copies}."
    ) + (
        " torch gathers all parts of an interleaved stage before its first pass, and scatters each "
        "part's gradients after its own last one; here each part is gathered in its own first "
        "pass, and all are scattered at the end."
        if schedule is Schedule.INTERLEAVED
        else ""
    )


def _waiting(call: CollectiveCall, seconds: float, phase: Phase, link: str) -> CostedOp:
    op = StepOp(OpCall(f"c10d::{call.kind}", (), ()), phase=phase, collective=call)
    cost = OpCost(
        op.call, work=None, roof=None, device_s=seconds, fixed_s=0.0, kernels=1, host_calls=1,
        link=link,
    )  # fmt: skip
    return CostedOp(op, cost)
