"""The attribution of a device timeline as the record that every diagnosis is assembled from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gobrrr.attribution.attributed import (
    MEAN,
    MEDIAN,
    READ_OF_ONE_VALUE,
    Attributed,
    AttributedOp,
    DrawnStep,
    StepTimes,
    ceiling_notices,
    recorded_step_times,
)
from gobrrr.attribution.collectives import Exposure, match_collectives
from gobrrr.attribution.device.attribute import DeviceAttribution
from gobrrr.attribution.device.groups import KernelGroups, group_kernels, in_steps
from gobrrr.attribution.device.idle import (
    CAUSE_LEAVES,
    DISPATCH,
    LAUNCH,
    PYTHON,
    SYNCHRONISATION,
    IdlePieces,
)
from gobrrr.attribution.device.scaling import scale_to_step, unsteady
from gobrrr.attribution.kernel_names import is_layout_change
from gobrrr.attribution.other_threads import work_on_others
from gobrrr.devices.ceilings import Ceilings
from gobrrr.live.profiles.recorded_timeline import step_marks
from gobrrr.measure import summarise
from gobrrr.recordings.names import is_blocking_copy, is_graph_launch
from gobrrr.timeline.data import HostKind, Int64, KernelKind, Phase, Timeline, names_that
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.intervals import distinct
from gobrrr.timeline.names import (
    COMPILED_REGION,
    COMPILED_REGIONS,
    KERNELS_COUNTED,
    KERNELS_OF_GRAPHS,
    LAYOUT_KERNELS_S,
)
from gobrrr.timeline.ops import OpCall

TRAILING = "(after the last kernel)"
# What a device waits for once its host has waited for it: the host is no longer ahead.
_AFTER_A_WAIT = (SYNCHRONISATION, PYTHON, DISPATCH, LAUNCH)


def exposure_of_device(found: DeviceAttribution) -> Exposure:
    """How long each kernel ran, and owned its time."""
    shares = found.attribution.kernels
    return Exposure(shares.owned_ns, shares.duration_ns)


def attributed_device(
    timeline: Timeline,
    found: DeviceAttribution,
    ceilings: Ceilings | None,
    unprofiled_s: Sequence[float] = (),
    *,
    varying: bool = False,
    same_clock: bool = False,
) -> Attributed:
    """A device's step, attributed.

    ``unprofiled_s``: step times measured without the profiler, where there are any (a live run):
    the leaves are brought to their median, or to their mean where steps differ in size
    (``varying``). Otherwise they are means over the windows. ``same_clock``: the device's clock
    stayed the same meanwhile.
    """
    step = recorded_step_times(timeline)
    timed: tuple[str, ...] = ()
    if unprofiled_s:
        step = StepTimes(
            time=summarise(list(unprofiled_s)),
            basis=MEAN if varying else MEDIAN,
            samples_s=tuple(unprofiled_s),
            profiled_s=step.profiled_s,
            profiler_cost_s=found.profiler_ns * 1e-9,
            profiled_steps=step.profiled_steps,
            varying=varying,
        )
        found, scales = scale_to_step(found, step.typical_s * 1e9, same_clock=same_clock)
        timed = () if varying else unsteady(found, step.time)
        step = replace(step, host_scale=scales.host, kernel_scale=scales.kernel)
    attribution = found.attribution
    groups = group_kernels(timeline, found)
    idle_ns = sum(gap.duration_ns for gap in attribution.idle)
    return Attributed(
        device=timeline.device,
        ceilings=ceilings,
        step=step,
        leaves_ns=attribution.leaves_ns,
        ops=tuple(_ops(timeline, found, groups)),
        shares=groups.shares,
        drawn=_drawn(timeline, found),
        idle=attribution.idle,
        beside_ns={TRAILING: max(0.0, idle_ns - float(found.idle_before_ns.sum()))},
        unlinked_ns=found.unlinked_ns,
        counters=_counters(timeline, found),
        device_time=found.device_time,
        collectives=match_collectives(
            [timeline], [exposure_of_device(found)], [timeline.rank], False
        )[0],
        concurrent=work_on_others(timeline),
        notices=(
            *timeline.notices,
            *attribution.notices,
            *timed,
            *ceiling_notices(timeline.device.name, ceilings),
        ),
    )


def _ops(timeline: Timeline, found: DeviceAttribution, groups: KernelGroups) -> list[AttributedOp]:
    """One per group of kernels that are alike."""
    host, kernels, work = timeline.host, timeline.kernels, found.work
    items = []
    for row, kernel in enumerate(groups.first.tolist()):
        op, call_index = int(work.op[kernel]), int(work.call[kernel])
        name = timeline.names[kernels.name[kernel] if op < 0 else host.name[op]]
        origin: dict[str, Any] = {}
        if (at := int(groups.origin[row])) >= 0:
            origin = {
                "module": timeline.names[host.module[at]] if host.module[at] >= 0 else "",
                "source": timeline.names[host.source[at]] if host.source[at] >= 0 else "",
                "phase": Phase(int(host.phase[at])),
            }
        call = timeline.calls[call_index] if call_index >= 0 else OpCall(name)
        items.append(
            AttributedOp(
                op=StepOp(call, **origin),
                work=groups.works[row],
                roof=groups.roofs[row],
                share=row,
                host_ns=float(groups.idle_before_ns[row]),
                count=float(groups.count[row]),
                weight=float(groups.weight[row]),
            )
        )
    return items


def _drawn(timeline: Timeline, found: DeviceAttribution) -> DrawnStep:
    """The step of median length."""
    low, high = (int(edge) for edge in timeline.steps[timeline.median_step])
    idle = found.idle
    seen = np.flatnonzero((idle.start_ns < high) & (idle.end_ns > low))
    return DrawnStep(
        names=timeline.names,
        window=(low, high),
        host=timeline.host,
        kernels=timeline.kernels,
        regime=found.attribution.kernels.regime,
        idle_start_ns=idle.start_ns[seen],
        idle_end_ns=idle.end_ns[seen],
        idle_leaf=tuple(CAUSE_LEAVES[cause] for cause in idle.cause[seen].tolist()),
    )


def _counters(timeline: Timeline, found: DeviceAttribution) -> dict[str, float]:
    steps = len(timeline.steps)
    kernels, host = timeline.kernels, timeline.host
    inside = in_steps(kernels.start_ns, timeline.steps)
    kind, op = kernels.kind[inside], kernels.op[inside]
    times = np.ones(len(kind)) if found.counts is None else found.counts[inside]
    names = timeline.names
    is_read = names_that(names, lambda name: name == READ_OF_ONE_VALUE)
    reads = is_read[np.append(host.name, -1)[op]] & (kind == KernelKind.COPY)
    low, high = _host_window(timeline, int(np.argmax(inside)))
    waits = (host.kind == HostKind.SYNCHRONISE) & (host.start_ns >= low) & (host.start_ns < high)
    blocking = names_that(names, is_blocking_copy)
    waited_ns = (host.end_ns - host.start_ns)[waits].sum()
    of_steps = (host.start_ns >= low) & (host.start_ns < high)
    is_region = names_that(names, lambda name: COMPILED_REGION in name)
    regions = int((is_region[host.name] & of_steps).sum())
    # A host that has issued all steps before the drawn one is done shows none in that.
    some = {COMPILED_REGIONS: regions / steps} if regions else {}
    is_kernel = kind == KernelKind.KERNEL
    is_graph = names_that(names, is_graph_launch)
    launch = kernels.launch[inside]
    of_graphs = is_kernel & is_graph[np.append(host.name, -1)[launch]]
    if of_graphs.any():
        some[KERNELS_OF_GRAPHS] = float(times[of_graphs].sum()) / steps
    # To the device, from memory that is not pinned: the call stages it, and returns when all is
    # across.
    staged = blocking[kernels.name[inside]] & (kernels.kind[inside] == KernelKind.COPY)
    staged &= names_that(names, lambda name: "HtoD" in name)[kernels.name[inside]]
    if staged.any():
        moved, took = (values[inside][staged] * times[staged] for values in (
            kernels.bytes_moved, kernels.end_ns - kernels.start_ns
        ))  # fmt: skip
        some["staged_bytes"] = float(np.maximum(moved, 0).sum()) / steps
        some["staged_copies_s"] = float(took.sum()) * 1e-9 / steps
        calls = distinct(launch[staged & (launch >= 0)])
        drained_ns = _drained_ns(host.start_ns[calls], host.end_ns[calls], found.idle)
        some["idle_after_staging_s"] = drained_ns * 1e-9 / steps
    # What a library does inside a convolution to the layout of its tensors, and back.
    lays_out = names_that(names, is_layout_change)
    convolves = names_that(names, lambda name: "convolution" in name)
    laid_out = lays_out[kernels.name[inside]] & convolves[np.append(host.name, -1)[op]]
    if laid_out.any():
        took = (kernels.end_ns - kernels.start_ns)[inside][laid_out] * times[laid_out]
        some[LAYOUT_KERNELS_S] = float(took.sum()) * 1e-9 / steps
    return {
        **some,
        KERNELS_COUNTED: float(times[is_kernel].sum()) / steps,
        "copies": float(times[kind == KernelKind.COPY].sum()) / steps,
        "collectives": float(times[kind == KernelKind.COLLECTIVE].sum()) / steps,
        "pageable_copies": float(times[blocking[kernels.name[inside]]].sum()) / steps,
        "synchronisations": float(waits.sum()) / steps,
        "reads_of_one_value": float(times[reads].sum()) / steps,
        # All that the host waited for the device, whether or not the device then waited too.
        "host_waits_s": float(waited_ns) * 1e-9 / steps,
        # Of that, what the device then waited for the host.
        "idle_after_waits_s": _drained_ns(host.start_ns[waits], host.end_ns[waits], found.idle)
        * 1e-9
        / steps,
    }


def _drained_ns(start: Int64, end: Int64, idle: IdlePieces) -> float:
    """Idle time of the device, in ns, that calls which wait for it have led to.

    A host that did not wait would have been ahead by as long as it waited, so of what the device
    idles until the host waits again at most that is due to a call.
    """
    if not len(start):
        return 0.0
    order = np.argsort(start, kind="stable")
    of_host = np.flatnonzero(np.isin(idle.cause, _AFTER_A_WAIT))
    # Before the first call it is the one before the steps that has waited: the last one of a step.
    after = np.searchsorted(start[order], idle.start_ns[of_host], side="right") - 1
    length = (idle.end_ns - idle.start_ns)[of_host].astype(np.float64)
    idled = np.bincount(after % len(order), weights=length, minlength=len(order))
    return float(np.minimum(idled, (end - start)[order]).sum())


def _host_window(timeline: Timeline, first: int) -> tuple[float, float]:
    """Where the host's code of the steps lies: it may run ahead of their windows.

    ``first`` is the first kernel of the first window. Before the first step's code and after the
    last's a recording holds what belongs to its ends.
    """
    marks = step_marks(timeline)
    launch = int(timeline.kernels.launch[first])
    begins = timeline.host.start_ns[launch] if launch >= 0 else timeline.steps[0, 0]
    at = int(np.searchsorted(marks, begins, side="right")) - 1
    end = at + len(timeline.steps)
    return (
        float(marks[at]) if at > 0 else -np.inf,
        float(marks[end]) if 0 < end < len(marks) else np.inf,
    )
