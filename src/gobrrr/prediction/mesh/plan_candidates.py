"""One mesh of a plan: whether a step fits on it, what it costs there, and why another is faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gobrrr.attribution.leaves import TOP_LEVELS
from gobrrr.prediction.kernels.energy import StepEnergy, energy_of_step
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.prediction.mesh.costs import (
    CostedMesh,
    Platform,
    alone,
    cost_step,
    mesh_ops,
    model_of,
)
from gobrrr.prediction.mesh.memory import RankMemory, rank_levels, rank_memory
from gobrrr.prediction.mesh.mesh import Mesh, MeshOptions, refuse_uneven
from gobrrr.prediction.mesh.pipeline import Stages, first_stage, run_stages
from gobrrr.prediction.mesh.pipeline_schedule import Schedule
from gobrrr.prediction.mesh.stage_memory import stage_memory
from gobrrr.prediction.mesh.step import Communication, communication, step_band, step_seconds
from gobrrr.prediction.step.costs import CostedOp
from gobrrr.prediction.step.energy import tokens_of
from gobrrr.prediction.step.host import host_share
from gobrrr.prediction.step.host_lane import HostCosts
from gobrrr.prediction.step.step import interval_of, on_device
from gobrrr.prediction.step.timeline import predicted_timeline
from gobrrr.timeline.data import Phase
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.graph import ModelFacts, OpGraph
from gobrrr.timeline.quantities import percent, si, time_text


@dataclass(frozen=True, slots=True)
class PlannedMesh:
    """One mesh that the step fits on.

    Attributes:
        mesh: of all the devices.
        step_s: predicted; ``low_s`` to ``high_s`` where it was asked for.
        host_bound: whether the step takes as long as its host does; ``None`` where it was not
            asked for.
        batches_per_s: of the job, each as large as the step's.
        tokens_per_s: ``None`` where nothing is embedded.
        memory: of the rank that holds most.
        parts_s: the step by compute, memory of the device, overhead, and exposed communication of
            each group; they sum to the step. Empty where it was not asked for.
        communication: by group, kind and phase.
        microbatches, schedule: of a pipeline's step.
        waits: the largest part of a pipeline's passes that one of its stages waits.
        slowest_stage: which one has updated its parameters last; the first is 0.
        joules: of a step, all devices together; ``None`` where it was not asked for or is not
            known. Links and hosts are not in it.
        slower_because: than the one before it.
    """

    mesh: Mesh
    step_s: float
    batches_per_s: float
    tokens_per_s: float | None
    memory: RankMemory
    low_s: float | None = None
    high_s: float | None = None
    host_bound: bool | None = None
    parts_s: tuple[tuple[str, float], ...] = ()
    communication: tuple[Communication, ...] = ()
    microbatches: int = 1
    schedule: str = ""
    waits: float | None = None
    slowest_stage: int | None = None
    joules: float | None = None
    slower_because: str = ""

    @property
    def batches(self) -> int:
        """Of a step, all data-parallel ranks together."""
        return self.mesh.data_ranks * self.microbatches

    @property
    def tokens_per_joule(self) -> float | None:
        """``None`` where one of both is not known."""
        if self.joules is None or self.tokens_per_s is None:
            return None
        return self.tokens_per_s * self.step_s / self.joules

    def taking(self, step_s: float) -> PlannedMesh:
        """The same mesh with another time of a step."""
        faster = self.step_s / step_s
        tokens = None if self.tokens_per_s is None else self.tokens_per_s * faster
        return replace(
            self, step_s=step_s, batches_per_s=self.batches_per_s * faster, tokens_per_s=tokens
        )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A mesh that the step cannot run on, and why; ``meshes``: how many it stands for."""

    mesh: str
    reason: str
    meshes: int = 1


@dataclass(frozen=True, slots=True)
class Setting:
    """What all meshes of a plan have in common.

    Attributes:
        platform: devices and links.
        host: what hosts cost beside it.
        limit_bytes: of each device; ``None``: unknown.
        microbatches: of a pipeline's step; ``None``: one for each stage.
        passes_s: times of pipelines' passes that were replayed before.
    """

    platform: Platform
    host: HostCosts
    limit_bytes: float | None
    microbatches: int | None
    passes_s: dict[Any, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A mesh that the step fits on; ``costed`` makes its first rank's ops with their costs.

    ``plain``: those of the step without a mesh.
    """

    row: PlannedMesh
    costed: Callable[[], CostedMesh]
    plain: CostedMesh


def candidate(
    graph: OpGraph, plain: CostedMesh, mesh: Mesh, setting: Setting
) -> Candidate | LeftOut:
    """The step on one mesh, or why it cannot run there.

    Args:
        graph: of the captured step, its layers divided as the mesh has it.
        plain: its ops with their costs.
        mesh: of all devices.
        setting: of the plan.
    """
    try:
        refuse_uneven(mesh)
        facts = model_of(graph)
        if mesh.pp > 1:
            return _pipeline(graph, facts, plain, mesh, setting)
        memory = rank_memory(graph, facts, mesh)
        left_out = _too_large(mesh, memory, setting)
        if left_out is not None:
            return left_out
        made = mesh_ops(graph, facts, mesh)
        costed = cost_step(made, plain, graph, mesh, setting.platform)
    except InputError as error:
        return LeftOut(str(mesh), str(error))
    step_s = step_seconds(costed.ops, setting.host)
    return Candidate(_row(mesh, step_s, memory, plain), lambda: costed, plain)


def _row(
    mesh: Mesh, step_s: float, memory: RankMemory, plain: CostedMesh, microbatches: int = 1
) -> PlannedMesh:
    rate = mesh.data_ranks * microbatches / step_s
    of_rank = tokens_of(op.op for op in plain.ops)
    tokens = None if of_rank is None else of_rank * rate
    return PlannedMesh(mesh, step_s, rate, tokens, memory, microbatches=microbatches)


def _too_large(mesh: Mesh, memory: RankMemory, setting: Setting) -> LeftOut | None:
    limit = setting.limit_bytes
    if limit is None or memory.peak <= limit:
        return None
    most = max(memory.by_kind().items(), key=lambda item: item[1])
    return LeftOut(
        str(mesh),
        f"a rank needs {si(memory.peak, 'B')} and has {si(limit, 'B')} (most of it: {most[0]}, "
        f"{si(most[1], 'B')})",
    )


def _pipeline(
    graph: OpGraph, facts: ModelFacts, plain: CostedMesh, mesh: Mesh, setting: Setting
) -> Candidate | LeftOut:
    """By the schedule that is faster, of those that fit.

    Raises:
        InputError: the model cannot be divided so.
    """
    platform, host = setting.platform, setting.host
    microbatches = mesh.pp if setting.microbatches is None else setting.microbatches
    whole = rank_levels(graph, facts, replace(mesh, pp=1))
    found: list[Candidate] = []
    refused: list[LeftOut | InputError] = []
    for schedule in (Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED):
        options = MeshOptions(mesh, platform.link, microbatches, schedule)
        try:
            stages = run_stages(graph, facts, plain, platform, host, options, setting.passes_s)
        except InputError as error:
            refused.append(error)
            continue
        memory = stage_memory(whole, graph, facts, stages)
        left_out = _too_large(mesh, memory, setting)
        if left_out is not None:
            refused.append(left_out)
            continue
        ran = stages.ran
        row = replace(
            _row(mesh, stages.seconds, memory, plain, microbatches),
            schedule=str(schedule),
            waits=max(ran.bubble_s) / ran.seconds,
            slowest_stage=stages.slowest,
        )

        def costed(stages: Stages = stages) -> CostedMesh:
            return first_stage(graph, facts, plain, platform, stages, host)

        found.append(Candidate(row, costed, plain))
    if found:
        return min(found, key=lambda each: each.row.step_s)
    first = refused[0]
    if isinstance(first, InputError):
        raise first
    return first


def in_full(one: Candidate, device: TargetDevice, host: HostCosts) -> PlannedMesh:
    """All that is told of a mesh among the best."""
    costed = one.costed()
    ran = predicted_timeline(costed.ops, device, host)
    step, attributed = on_device(ran, device)
    rows = communication(ran.timeline, attributed)
    leaves = {name: ns * 1e-9 for name, ns in step.leaves_ns.items()}
    row = one.row.taking(sum(leaves.values()))
    network = leaves["memory.network"] + leaves["memory.network_wait"]
    parts: dict[str, float] = {}
    for level in TOP_LEVELS:
        parts[level] = sum(s for leaf, s in leaves.items() if leaf.partition(".")[0] == level)
    parts["memory"] -= network
    for each in rows:
        name = f"exposed {each.group}"
        parts[name] = parts.get(name, 0.0) + each.exposed_s
    exposed_s = leaves["overhead.dispatch"]
    of_host = host_share(alone(costed.ops), host, step_s=row.step_s, exposed_s=exposed_s)
    options = MeshOptions(row.mesh, microbatches=row.microbatches)
    band = step_band(costed, options, device, host, row.step_s, of_host)
    interval = interval_of(row.step_s, band)
    return replace(
        row,
        host_bound=of_host.host_bound,
        low_s=interval.low,
        high_s=interval.high,
        parts_s=tuple((name, s) for name, s in parts.items() if s > 0),
        communication=tuple(rows),
        joules=_joules(one.plain, costed, row, device),
    )


def _joules(
    plain: CostedMesh, costed: CostedMesh, row: PlannedMesh, device: TargetDevice
) -> float | None:
    """Of a step of all devices, which are alike; of a pipeline, all stages of which are not."""
    if row.mesh.pp == 1:
        one = _energy(costed.ops, row.step_s, device)
        return None if one is None else one.joules * row.mesh.devices
    passes = _energy([op for op in plain.ops if _passes(op)], row.step_s, device)
    update = _energy([op for op in plain.ops if not _passes(op)], row.step_s, device)
    if passes is None or update is None:
        return None
    of_ops = row.microbatches * (passes.arithmetic_j + passes.memory_j)
    of_ops += (update.arithmetic_j + update.memory_j) / row.mesh.fsdp
    return row.mesh.devices * passes.static_j + row.mesh.devices / row.mesh.pp * of_ops


def _energy(ops: Sequence[CostedOp], step_s: float, device: TargetDevice) -> StepEnergy | None:
    return energy_of_step(
        ((op.work, op.cost.cold_bytes, op.device_s) for op in ops), step_s, device
    )


def _passes(op: CostedOp) -> bool:
    return op.op.phase in (Phase.FORWARD, Phase.BACKWARD)


def why_slower(better: PlannedMesh, row: PlannedMesh) -> str:
    """What a batch takes more of here, of the time of all devices that work on it."""
    before, after = _per_batch(better), _per_batch(row)
    more = {
        name: after.get(name, 0.0) - before.get(name, 0.0)
        for name in dict.fromkeys([*after, *before])
    }
    name = max(more, key=lambda each: more[each])
    less = 1 - row.batches_per_s / better.batches_per_s
    return (
        f"{percent(less, 1)} fewer batches per second than {better.mesh}: {_named(name)} takes "
        f"{time_text(after.get(name, 0.0))} of device time per batch instead of "
        f"{time_text(before[name]) if before.get(name) else 'none'}"
    )


def _per_batch(row: PlannedMesh) -> dict[str, float]:
    ranks = row.mesh.devices / row.batches
    return {name: seconds * ranks for name, seconds in row.parts_s}


def _named(part: str) -> str:
    if part == "exposed pp":
        return "waiting of pipeline stages for each other"
    if part.startswith("exposed "):
        return f"exposed communication in {part.removeprefix('exposed ')}"
    return "memory traffic" if part == "memory" else part
