"""The attribution of a device timeline as the record that every diagnosis is assembled from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gobrrr.attribution.attributed import (
    MEDIAN,
    Attributed,
    AttributedOp,
    DrawnStep,
    StepTimes,
    ceiling_notices,
    recorded_step_times,
)
from gobrrr.attribution.collectives import match_collectives
from gobrrr.attribution.device import DeviceAttribution
from gobrrr.attribution.device_groups import KernelGroups, group_kernels
from gobrrr.attribution.idle import CAUSE_LEAVES
from gobrrr.attribution.scaling import scale_to_step
from gobrrr.devices.ceilings import Ceilings
from gobrrr.measure import summarise
from gobrrr.timeline.data import HostKind, KernelKind, Phase, Timeline
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall

TRAILING = "(after the last kernel)"


def attributed_device(
    timeline: Timeline,
    found: DeviceAttribution,
    ceilings: Ceilings | None,
    unprofiled_s: Sequence[float] = (),
) -> Attributed:
    """A device's step, attributed.

    ``unprofiled_s``: step times measured without the profiler, where there are any (a live run):
    the leaves are brought to their median. Otherwise they are means over the windows.
    """
    step = recorded_step_times(timeline)
    if unprofiled_s:
        time = summarise(list(unprofiled_s))
        found, scales = scale_to_step(found, time.median * 1e9)
        step = StepTimes(
            time=time,
            basis=MEDIAN,
            samples_s=tuple(unprofiled_s),
            profiled_s=step.profiled_s,
            host_scale=scales.host,
            kernel_scale=scales.kernel,
            profiled_steps=step.profiled_steps,
        )
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
        counters=_counters(timeline),
        device_time=found.device_time,
        collectives=match_collectives([timeline], [found], [timeline.rank or 0], False)[0],
        notices=(
            *timeline.notices,
            *attribution.notices,
            *ceiling_notices(timeline.device.name, ceilings),
        ),
    )


def _ops(timeline: Timeline, found: DeviceAttribution, groups: KernelGroups) -> list[AttributedOp]:
    """One per group of kernels that are alike."""
    host, kernels, work = timeline.host, timeline.kernels, found.work
    items = []
    for row, kernel in enumerate(groups.first.tolist()):
        op, call_index = int(work.op[kernel]), int(work.call[kernel])
        origin: dict[str, Any] = {}
        name = timeline.names[kernels.name[kernel]]
        if op >= 0:
            name = timeline.names[host.name[op]]
            origin = {
                "module": timeline.names[host.module[op]] if host.module[op] >= 0 else "",
                "source": timeline.names[host.source[op]] if host.source[op] >= 0 else "",
                "phase": Phase(int(host.phase[op])),
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
    lengths = timeline.steps[:, 1] - timeline.steps[:, 0]
    chosen = int(np.argsort(lengths, kind="stable")[len(lengths) // 2])
    low, high = (int(edge) for edge in timeline.steps[chosen])
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


def _counters(timeline: Timeline) -> dict[str, float]:
    steps = len(timeline.steps)
    kind, host = timeline.kernels.kind, timeline.host.kind
    return {
        "kernels": float((kind == KernelKind.KERNEL).sum()) / steps,
        "copies": float((kind == KernelKind.COPY).sum()) / steps,
        "collectives": float((kind == KernelKind.COLLECTIVE).sum()) / steps,
        "synchronisations": float((host == HostKind.SYNCHRONISE).sum()) / steps,
    }
