"""Every mesh that so many devices can form for a step: what each costs, holds and waits for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from gobrrr.prediction.capture_target import capture_target
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.prediction.mesh.collectives import HostLink
from gobrrr.prediction.mesh.costs import Platform, cost_ops
from gobrrr.prediction.mesh.mesh import NETWORK_LATENCY_S, Mesh, spread
from gobrrr.prediction.mesh.plan_candidates import (
    Candidate,
    LeftOut,
    PlannedMesh,
    Setting,
    candidate,
    in_full,
    why_slower,
)
from gobrrr.prediction.mesh.step import left_whole
from gobrrr.prediction.step.host_lane import HostCosts
from gobrrr.prediction.step.in_place import zeros_written_in_place
from gobrrr.prediction.step.torch_flags import flags_in_force
from gobrrr.symbolic.op_graph import CaptureOptions, capture_op_graph
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.graph import OpGraph
from gobrrr.timeline.quantities import si

# Devices that share a host, where nothing else is said: an HGX board, a DGX.
USUAL_PER_HOST = 8
# A card for each device, as DGX H100 has them (NVIDIA DGX H100 user guide: 8 ConnectX-7).
USUAL_CARD_BYTES_PER_S = 400e9 / 8
BEST = 5
# Reasons that are told where no mesh fits.
_REASONS = 4


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What to plan for.

    Attributes:
        devices: of the job.
        hosts: ``None``: of eight devices each, or one host for fewer.
        memory_bytes: of each device; ``None``: as its data sheet says.
        link: between hosts; ``None``: a card of 400 Gb/s for each device.
        microbatches: of a pipeline's step; ``None``: as many as it has stages, so that an update
            is of as many batches as on the other meshes.
        capture: how the step runs.
    """

    devices: int
    hosts: int | None = None
    memory_bytes: float | None = None
    link: HostLink | None = None
    microbatches: int | None = None
    capture: CaptureOptions = field(default_factory=CaptureOptions)


@dataclass(frozen=True, slots=True)
class Plan:
    """All meshes, the best first; of ``best`` of them all is known."""

    device: str
    devices: int
    hosts: int
    best: tuple[PlannedMesh, ...]
    others: tuple[PlannedMesh, ...]
    left_out: tuple[LeftOut, ...]
    notices: tuple[str, ...]


def plan_meshes(
    make: Callable[[], Any],
    device: TargetDevice,
    host: HostCosts,
    options: PlanOptions,
    tell: Callable[[str, int, int], None],
) -> Plan:
    """Predict the step on every mesh of the devices.

    The step is captured once for each degree of tensor parallelism; the rest is built from that.

    Args:
        make: makes the step, as for ``capture_op_graph``.
        device: all of them are.
        host: what hosts cost beside it.
        options: how many, and of what.
        tell: is told what is done, how much of it and of how much.

    Raises:
        InputError: the devices do not divide among the hosts, the step cannot be captured, or it
            fits on no mesh.
    """
    hosts = _hosts(options)
    notices = []
    link = options.link
    if hosts == 1 and link is not None:
        raise InputError(
            f"--link is the bandwidth between hosts, and {options.devices} devices are on one "
            "host: give --hosts N, or leave out --link"
        )
    if hosts > 1 and link is None:
        rate = USUAL_CARD_BYTES_PER_S * (options.devices // hosts)
        link = HostLink(rate, NETWORK_LATENCY_S)
        notices.append(
            "Each host is assumed to have one 400 Gb/s network adapter per device, "
            f"{si(rate, 'B/s')} in all; --link sets another bandwidth."
        )
    platform = Platform(device, link, flags_in_force())
    limit = options.memory_bytes or device.memory_bytes
    meshes = all_meshes(options.devices, hosts)
    found: list[Candidate] = []
    left_out: list[LeftOut] = []
    degrees = sorted({mesh.tp for mesh in meshes})
    done = 0
    setting = Setting(platform, host, limit, options.microbatches)
    for degree in degrees:
        of_degree = [mesh for mesh in meshes if mesh.tp == degree]
        tell(f"capturing the step, tp={degree}", done, len(meshes))
        try:
            graph = _captured(make, device, options, degree)
            plain = cost_ops(graph, of_degree[0], platform)
        except InputError as error:
            if degree == 1:
                raise
            reason = str(error).removeprefix(f"tp={degree}: ")
            left_out.append(LeftOut(f"tp={degree}", reason, len(of_degree)))
            done += len(of_degree)
            continue
        if degree == 1:
            notices += [*graph.notices, *plain.notices]
        elif graph.undivided:
            notices.append(left_whole(graph))
        for mesh in of_degree:
            tell(f"predicting {mesh}", done, len(meshes))
            done += 1
            one = candidate(graph, plain, mesh, setting)
            if isinstance(one, LeftOut):
                left_out.append(one)
            else:
                found.append(one)
    if not found:
        why = "; ".join(f"{each.mesh}: {each.reason}" for each in left_out[:_REASONS])
        more = sum(each.meshes for each in left_out[_REASONS:])
        others = f"; and {more} more" if more else ""
        raise InputError(f"the step fits no mesh of {options.devices} {device.key}: {why}{others}")
    found.sort(key=lambda each: -each.row.batches_per_s)
    full = [in_full(each, device, host) for each in found[: BEST + 1]]
    full.sort(key=lambda row: -row.batches_per_s)
    best: list[PlannedMesh] = []
    for row in full:
        best.append(replace(row, slower_because=why_slower(best[-1], row) if best else ""))
    rest = [*best[BEST:], *(each.row for each in found[BEST + 1 :])]
    if any(row.mesh.pp > 1 for row in full[:BEST]):
        notices.append(_of_pipelines(options.microbatches))
    return Plan(
        device.key,
        options.devices,
        hosts,
        tuple(best[:BEST]),
        tuple(sorted(rest, key=lambda row: -row.batches_per_s)),
        tuple(left_out),
        tuple(dict.fromkeys((*notices, *device.notices))),
    )


def all_meshes(devices: int, hosts: int) -> list[Mesh]:
    """Every way to divide the devices into pp, dp, fsdp and tp; tp stays within a host.

    Raises:
        InputError: the devices do not divide among the hosts.
    """
    per_host = spread(Mesh(dp=devices), hosts).per_host
    found = []
    for tp in _divisors(per_host):
        left = devices // tp
        for pp in _divisors(left):
            of_stage = left // pp
            found += [Mesh(of_stage // fsdp, fsdp, tp, hosts, pp) for fsdp in _divisors(of_stage)]
    return found


def _of_pipelines(microbatches: int | None) -> str:
    """What an update of a pipeline is, beside that of other meshes."""
    if microbatches is None:
        return (
            "A pipeline of N stages runs N microbatches per step, each the program's batch, so an "
            "update covers as many batches as on other meshes with its tp; --microbatches sets "
            "another number."
        )
    return (
        f"A pipeline runs {microbatches} microbatches per step, each the program's batch, and "
        "updates once; other meshes update after each batch."
    )


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


def _hosts(options: PlanOptions) -> int:
    if options.hosts is not None:
        return options.hosts
    if options.devices <= USUAL_PER_HOST:
        return 1
    if options.devices % USUAL_PER_HOST:
        raise InputError(
            f"{options.devices} devices do not fill whole hosts of {USUAL_PER_HOST}: give the "
            "number of hosts with --hosts"
        )
    return options.devices // USUAL_PER_HOST


def _captured(
    make: Callable[[], Any], device: TargetDevice, options: PlanOptions, degree: int
) -> OpGraph:
    how = replace(options.capture, model=True, tensor_parallel=degree)
    return zeros_written_in_place(capture_op_graph(make, capture_target(device), how))
