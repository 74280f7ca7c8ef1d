"""A captured step on a mesh of devices, attributed as a measured one of its first rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from gobrrr.attribution.attributed import MEDIAN, Attributed, StepTimes
from gobrrr.attribution.device.attribute import DeviceAttribution
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.prediction.mesh.bands import measured_band, unmeasured_band, with_slow_host
from gobrrr.prediction.mesh.collectives import HostLink
from gobrrr.prediction.mesh.compiled import compiled_by_block
from gobrrr.prediction.mesh.costs import (
    CostedMesh,
    Platform,
    alone,
    as_used,
    communicates,
    cost_ops,
    cost_step,
    mesh_ops,
    model_of,
)
from gobrrr.prediction.mesh.ddp import buckets_under
from gobrrr.prediction.mesh.memory import RankMemory, rank_levels
from gobrrr.prediction.mesh.mesh import Mesh, MeshOptions, refuse_processor, refuse_uneven
from gobrrr.prediction.mesh.pipeline import CostedPipeline, pipelined
from gobrrr.prediction.mesh.stage_memory import stage_memory
from gobrrr.prediction.step.bands import ErrorBand, band_of, interval_notices
from gobrrr.prediction.step.costs import CostedOp
from gobrrr.prediction.step.energy import tokens_of
from gobrrr.prediction.step.explanation import explained, uncertainty
from gobrrr.prediction.step.host import HostShare, host_share
from gobrrr.prediction.step.host_calls import entered_at
from gobrrr.prediction.step.host_lane import HostCosts
from gobrrr.prediction.step.in_place import zeros_written_in_place
from gobrrr.prediction.step.memory import memory_notice
from gobrrr.prediction.step.step import counters_of, interval_of, on_device
from gobrrr.prediction.step.stream_replay import LARGEST_SLOWDOWN_BESIDE, SLOWDOWN_BESIDE
from gobrrr.prediction.step.timeline import predicted_timeline, replayed
from gobrrr.prediction.step.torch_flags import flags_in_force
from gobrrr.timeline.collector import uncollected
from gobrrr.timeline.data import PHASE_NAMES, KernelKind, Phase, Timeline
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.graph import ModelFacts, OpGraph, Wrapping
from gobrrr.timeline.quantities import binary_size, percent
from gobrrr.work.estimate import Work

# Collectives whose arithmetic is told with --explain.
_EXPLAINED = 3
# Kinds of layers that are named; most models have fewer.
_NAMED = 8
_COMPILED = (
    "Each block is compiled by itself, as where a wrapper acts between them; memory is that of the "
    "step as it is written."
)


@dataclass(frozen=True, slots=True)
class Communication:
    """Collectives of one group, kind and phase: in a step of one rank.

    ``time_s``: of all of them, as they ran; ``exposed_s``: of it, with nothing that computes.
    """

    group: str
    kind: str
    phase: str
    ranks: int
    calls: int
    n_bytes: int
    time_s: float
    exposed_s: float


@uncollected()
def mesh_step(
    graph: OpGraph,
    device: TargetDevice,
    host: HostCosts,
    options: MeshOptions,
    *,
    name: str,
) -> tuple[Attributed, Sequence[CostedOp], dict[str, Any]]:
    """The step of the first rank, its ops with their costs, and what its diagnosis says of it.

    Raises:
        InputError: the step has no model, the model does not suit the mesh, the mesh lies unevenly
            on its hosts, a link is unknown, or the device is a processor.
    """
    mesh = options.mesh
    refuse_processor(device.key, device.kind)
    alone_asks = graph.wrapping is None and communicates(graph)
    facts = graph.model or ModelFacts((), ()) if alone_asks else model_of(graph)
    used = as_used(graph, mesh)
    if not alone_asks:
        refuse_uneven(used)
    platform = Platform(device, options.link, flags_in_force())
    if not options.compiled:
        graph = zeros_written_in_place(graph)
    held = rank_levels(graph, facts, Mesh() if alone_asks else used)
    tokens = tokens_of(graph.ops)
    works: Mapping[int, Work | None] = {}
    entries: Mapping[int, int] = {}
    if options.compiled:
        if communicates(graph):
            raise InputError(
                "a program that communicates by itself cannot be predicted compiled: leave out "
                "--compile, or give a plain model, to which --mesh applies DDP or FSDP2"
            )
        made = compiled_by_block(graph, facts, device.multiprocessors)
        graph, facts, works, entries = made.graph, made.facts, made.works, made.entries
    plain = cost_ops(graph, mesh, platform, works)
    plain = replace(plain, ops=tuple(entered_at(plain.ops, entries)))
    pipeline: CostedPipeline | None = None
    costed: CostedMesh
    if mesh.pp > 1:
        costed = pipeline = pipelined(graph, facts, plain, platform, host, options)
    else:
        costed = cost_step(mesh_ops(graph, facts, mesh), plain, graph, mesh, platform)
    ran = predicted_timeline(costed.ops, device, host)
    step, found = on_device(ran, device)
    step_s = sum(step.leaves_ns.values()) * 1e-9
    memory = held.most()
    if pipeline is not None:
        memory = stage_memory(held, graph, facts, pipeline.stages)
    said = (
        pipeline.assumptions
        if pipeline is not None
        else assumptions(graph, facts, used, by_itself=alone_asks)
    )
    if graph.undivided:
        said.append(left_whole(graph))
    if options.compiled:
        said.append(_COMPILED)
    own = alone(costed.ops)
    exposed_s = step.leaves_ns["overhead.dispatch"] * 1e-9
    of_host = host_share(own, host, step_s=step_s, exposed_s=exposed_s)
    band = step_band(costed, replace(options, mesh=used), device, host, step_s, of_host)
    too_large = memory_notice(device.key, memory.peak, device.memory_bytes)
    notices = (
        *graph.notices,
        *said,
        *((too_large,) if too_large is not None else ()),
        *costed.notices,
        *device.notices,
        *interval_notices(band),
        *of_host.sentences,
    )
    step = replace(
        step,
        step=StepTimes(interval_of(step_s, band), MEDIAN),
        counters={
            **counters_of(costed.ops, memory.peak),
            "collectives": float(len(costed.ops) - len(own)),
        },
        notices=notices,
    )
    rows = communication(ran.timeline, found)
    if tokens is not None:
        tokens *= options.microbatches
    arithmetic = dict.fromkeys(
        op.because for op in sorted(costed.ops, key=lambda op: -op.device_s) if op.op.collective
    )
    source = {
        "kind": "prediction",
        "name": f"{name} on {mesh}",
        "device": device.key,
        "compile": options.compiled,
        "rank": 0,
        "world_size": mesh.devices,
        "interval_from": band.source,
        "assumptions": len(graph.notices),
        "host_bound": of_host.host_bound,
        "host_s": of_host.total_s,
        "mesh": {
            **_record(used, options.link, memory, rows, tokens, step_s),
            "pipeline": None if pipeline is None else pipeline.record,
        },
        "explained": [*explained(own, device), *list(arithmetic)[:_EXPLAINED]],
        **uncertainty(own, device, step_s, of_host),
    }
    return step, costed.ops, source


def step_band(
    costed: CostedMesh,
    options: MeshOptions,
    device: TargetDevice,
    host: HostCosts,
    step_s: float,
    of_host: HostShare,
) -> ErrorBand:
    """``mesh_band``, reaching up to a slow host's step; ``of_host``: of a rank."""
    of_device = mesh_band(costed, options.mesh, device, host, step_s, compiled=options.compiled)
    return with_slow_host(of_device, step_s, of_host, options)


def mesh_band(
    costed: CostedMesh,
    mesh: Mesh,
    device: TargetDevice,
    host: HostCosts,
    step_s: float,
    *,
    compiled: bool = False,
) -> ErrorBand:
    """How far a step may lie from the prediction: as whole steps on such meshes did.

    Where none were measured, kernels and collectives at their intervals' ends are looked at too.
    Both ends are replayed, so that what is hidden at one may be exposed at the other; at the upper
    end what computes beside a collective is slowed by the most that was measured.
    """
    measured = measured_band(mesh, device.key, compiled=compiled)
    if measured is not None:
        return measured
    kernels = band_of(device, compiled, alone(costed.ops))
    low, high = (1.0, 1.0) if kernels is None else (kernels.low, kernels.high)
    least, most = costed.scaled(low, high)
    said = "" if kernels is None else f"; kernels: {kernels.source}"
    replayed = ErrorBand(
        step_seconds(least, host, 0.0) / step_s,
        step_seconds(most, host, LARGEST_SLOWDOWN_BESIDE) / step_s,
        f"collectives at the ends of their intervals{said}",
    )
    return unmeasured_band(mesh, device.key, replayed, compiled=compiled)


def step_seconds(
    ops: Sequence[CostedOp], host: HostCosts, slowdown: float = SLOWDOWN_BESIDE
) -> float:
    """How long a step of these ops takes, replayed."""
    return float(replayed(ops, host, slowdown).ops.end_s.max())


def communication(timeline: Timeline, found: DeviceAttribution) -> list[Communication]:
    """What is communicated, by group, kind and phase; the most exposed first."""
    kernels, shares = timeline.kernels, found.attribution.kernels
    rows: dict[tuple[str, str, str], Communication] = {}
    for row in range(len(kernels)):
        if kernels.kind[row] != KernelKind.COLLECTIVE:
            continue
        asked = timeline.collectives[kernels.collective[row]]
        phase = PHASE_NAMES[Phase(int(timeline.host.phase[kernels.op[row]]))]
        group = asked.group or ""
        key = (group, asked.name, phase)
        before = rows.get(key)
        if before is None:
            before = Communication(group, asked.name, phase, asked.group_size or 1, 0, 0, 0.0, 0.0)
        rows[key] = replace(
            before,
            calls=before.calls + 1,
            n_bytes=before.n_bytes + int(kernels.bytes_moved[row]),
            time_s=before.time_s + float(kernels.end_ns[row] - kernels.start_ns[row]) * 1e-9,
            exposed_s=before.exposed_s + float(shares.owned_ns[row]) * 1e-9,
        )
    return sorted(rows.values(), key=lambda each: (-each.exposed_s, -each.time_s))


def assumptions(
    graph: OpGraph, facts: ModelFacts, mesh: Mesh, *, by_itself: bool = False
) -> list[str]:
    """What is taken to hold of the mesh, as sentences.

    ``by_itself``: the program communicates without being told to.
    """
    beside = (
        f"Kernels that overlap with a collective are assumed to take {percent(SLOWDOWN_BESIDE)} "
        f"longer ({percent(LARGEST_SLOWDOWN_BESIDE)} at the interval's upper end; "
        "arXiv:2507.03114)."
    )
    if by_itself:
        return [
            "The step calls collectives itself: --mesh only gives the number of ranks, and no "
            "communication is added. All ranks are assumed to be equally fast.",
            beside,
        ]
    found = []
    own = graph.wrapping or Wrapping("", ())
    if graph.wrapping is not None:
        found.append("The program wraps its model itself: --mesh only gives the number of ranks.")
    if mesh.data_ranks > 1:
        found.append(
            f"Each of the {mesh.data_ranks} data-parallel ranks runs the step with the batch that "
            "the program gives. All ranks are assumed to be equally fast."
        )
    if mesh.fsdp > 1:
        found.append(_of_shards(facts, mesh, own))
    elif mesh.dp > 1:
        found.append(_of_buckets(facts, own))
        if facts.passes > 1:
            found.append(
                f"The step runs {facts.passes} backward passes; gradients are reduced in the last."
            )
    if mesh.tp > 1:
        found.append(
            f"tp={mesh.tp} divides the linear layers of attention and MLP as Megatron-LM does; "
            "embeddings, norms and all other layers are replicated."
        )
    return [*found, beside]


def left_whole(graph: OpGraph) -> str:
    """Which linear layers and attentions tensor parallelism does not divide, as a sentence."""
    names = ", ".join(graph.undivided[:_NAMED])
    more = len(graph.undivided) - _NAMED
    return f"Left whole on every rank of tp: {names}{f' and {more} more' if more > 0 else ''}."


def _of_shards(facts: ModelFacts, mesh: Mesh, own: Wrapping) -> str:
    blocks = {each.unit for each in facts.parameters} - {""}
    whole = len(blocks & facts.whole)
    stay = f", {whole} of them gathered until their backward pass" if whole else ""
    copies = f", shards reduced over {mesh.dp} copies" if mesh.dp > 1 else ""
    computed = {each.dtype for each in facts.parameters if each.stored}
    gathered = f"gathered in {' and '.join(sorted(computed))}" if computed else "gathered as it is"
    reduced = f"in {own.reduce_dtype}" if own.reduce_dtype else "in the dtype of gradients"
    return (
        f"FSDP2: fully_shard on {len(blocks)} blocks and on the model{stay}"
        f"{copies}; each is {gathered} and reduced {reduced}."
    )


def _of_buckets(facts: ModelFacts, own: Wrapping) -> str:
    buckets = buckets_under(own, facts)
    sizes = "25 MiB (the first at 1 MiB)"
    if own.bucket_bytes is not None:
        sizes = binary_size(own.bucket_bytes)
    back = "" if own.bucket_views else " and back"
    return (
        f"DDP: {len(buckets)} gradient buckets, each closed at {sizes} or larger with a larger "
        "gradient, reduced during the backward pass; each gradient is copied into its "
        f"bucket{back}."
    )


def _record(
    mesh: Mesh,
    link: HostLink | None,
    memory: RankMemory,
    rows: Sequence[Communication],
    tokens: int | None,
    step_s: float,
) -> dict[str, Any]:
    return {
        **mesh.sizes,
        "devices": mesh.devices,
        "hosts": mesh.hosts,
        "link_bytes_per_s": None if link is None else link.bytes_per_s,
        "link_latency_s": None if link is None else link.latency_s,
        "memory": {**memory.by_kind(), "peak": memory.peak},
        "communication": [asdict(row) for row in rows],
        "exposed_s": sum(row.exposed_s for row in rows),
        "steps_per_s": 1.0 / step_s,
        "tokens_per_s": None if tokens is None else tokens * mesh.data_ranks / step_s,
    }
