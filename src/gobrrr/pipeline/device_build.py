"""A device timeline (a trace's, or a live profile's) -> a ``Diagnosis``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from gobrrr.attribution.collectives import match_collectives
from gobrrr.attribution.device import DeviceAttribution, attribute_device
from gobrrr.attribution.device_groups import KernelGroups, group_kernels
from gobrrr.attribution.idle import CAUSE_LEAVES
from gobrrr.attribution.leaves import COLLECTIVE, COPY, REGIME_NAMES
from gobrrr.attribution.scaling import scale_to_step
from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.schema import (
    DeviceRecord,
    Diagnosis,
    IdleRow,
    SlowStep,
    Spread,
    StepRecord,
    TimelineColumns,
)
from gobrrr.measure import summarise
from gobrrr.pipeline.records import (
    ceiling_rows,
    collective_rows,
    device_time_record,
    level_rows,
    spread_record,
)
from gobrrr.pipeline.tables import (
    PHASE_NAMES,
    OpShare,
    above_ceiling_rows,
    coverage_of,
    group_rows,
    op_class_of,
    op_rows,
)
from gobrrr.pipeline.verdict import mfu_of, regime_of, split_of, verdict_of
from gobrrr.timeline.data import HostKind, KernelKind, Phase, Timeline
from gobrrr.timeline.ops import OpCall
from gobrrr.work import work_of
from gobrrr.work.estimate import Work

TRAILING = "(after the last kernel)"
# Under this share of kernel time, sums over the modelled kernels would pass for the whole.
MOSTLY_MODELLED = 0.9
# What a report can draw smoothly; a longer step keeps its longest spans.
MOST_DRAWN = 200_000


def build_device_diagnosis(
    timeline: Timeline,
    ceilings: Ceilings | None,
    source: dict[str, Any],
    environment: dict[str, Any],
    unprofiled: Spread | None = None,
    formula: Callable[[OpCall], Work | None] = work_of,
) -> tuple[Diagnosis, DeviceAttribution]:
    """Attribute the timeline and lay the result out as tables.

    ``unprofiled``: step time measured without the profiler, where there is one (a live run): the
    leaves are brought to its median. ``formula``: the work of an op.

    Raises ValueError if the timeline has no device work.
    """
    found = attribute_device(timeline, ceilings, formula)
    return lay_out_device(timeline, found, ceilings, source, environment, unprofiled)


def lay_out_device(
    timeline: Timeline,
    found: DeviceAttribution,
    ceilings: Ceilings | None,
    source: dict[str, Any],
    environment: dict[str, Any],
    unprofiled: Spread | None = None,
) -> tuple[Diagnosis, DeviceAttribution]:
    """Lays an attribution out as tables; see ``build_device_diagnosis``."""
    step = _step_record(timeline, found.attribution.step_ns * 1e-9)
    if unprofiled is not None:
        found, scales = scale_to_step(found, unprofiled.median * 1e9)
        step.time_s, step.host_scale, step.kernel_scale = unprofiled, scales.host, scales.kernel
    attribution = found.attribution
    groups = group_kernels(timeline, found)
    shares = groups.shares
    leaves = {name: ns * 1e-9 for name, ns in attribution.leaves_ns.items()}
    step_s = attribution.step_ns * 1e-9
    items = _op_shares(timeline, found, groups)
    idle_s = sum(gap.duration_ns for gap in attribution.idle) * 1e-9
    trailing_s = max(0.0, idle_s - float(found.idle_before_ns.sum()) * 1e-9)
    regime, close = regime_of(leaves)

    def grouped(key: Callable[[OpShare], tuple[str, str | None]]) -> list[Any]:
        return group_rows(items, shares, key, step_s, {TRAILING: trailing_s})

    diagnosis = Diagnosis(
        environment=environment,
        source=source,
        device=DeviceRecord(
            name=timeline.device.name,
            kind=timeline.device.kind,
            memory_bytes=timeline.device.memory_bytes,
            ceilings=[] if ceilings is None else ceiling_rows(ceilings),
            levels=[] if ceilings is None else level_rows(ceilings),
        ),
        step=step,
        split=split_of(leaves),
        leaves=leaves,
        regime=regime,
        close=close,
        coverage=coverage_of(items, shares, found.unlinked_ns * 1e-9),
        above_ceiling=above_ceiling_rows(items, shares),
        ops=op_rows(items, shares),
        classes=grouped(lambda item: (_op_class(item, shares.regime), None)),
        modules=grouped(lambda item: (item.module, PHASE_NAMES[item.phase])),
        lines=grouped(lambda item: (item.source, PHASE_NAMES[item.phase])),
        phases=grouped(lambda item: (PHASE_NAMES[item.phase], None)),
        idle=_idle_rows(found),
        device_time=None
        if timeline.device.kind == "cpu"
        else device_time_record(found.device_time),
        collectives=collective_rows(
            match_collectives([timeline], [found], [timeline.rank or 0], False)[0]
        ),
        timeline=_timeline_columns(timeline, found),
        notices=[*timeline.notices, *attribution.notices, *_ceiling_notices(timeline, ceilings)],
        counters=_counters(timeline, items),
    )
    fraction = diagnosis.coverage.modelled_time_fraction
    if fraction is not None and fraction >= MOSTLY_MODELLED:
        diagnosis.mfu, diagnosis.mfu_dtype = mfu_of(
            ((item.work, item.weight) for item in items), ceilings, step_s
        )
    diagnosis.speed_of_light_s = _speed_of_light(diagnosis, ceilings)
    diagnosis.verdict = verdict_of(diagnosis)
    diagnosis.check()
    return diagnosis, found


def _step_record(timeline: Timeline, step_s: float) -> StepRecord:
    lengths = ((timeline.steps[:, 1] - timeline.steps[:, 0]) * 1e-9).tolist()
    spread = spread_record(summarise(lengths))
    # The windows tile the trace and the leaves are their means: the step is their mean, not their
    # median, and it is profiled time, because a trace holds no other.
    spread.median = step_s
    typical = median(lengths)
    return StepRecord(
        time_s=spread,
        kind="step" if len(lengths) > 1 else "trace",
        profiled_time_s=step_s,
        slow_steps=[
            SlowStep(index=i, time_s=length)
            for i, length in enumerate(lengths)
            if length > 1.5 * typical
        ],
        samples_s=lengths,
        profiled_steps=len(lengths),
    )


def _op_shares(timeline: Timeline, found: DeviceAttribution, groups: KernelGroups) -> list[OpShare]:
    """One per group of kernels that are alike."""
    host, kernels, work = timeline.host, timeline.kernels, found.work
    items = []
    for row, kernel in enumerate(groups.first.tolist()):
        op, call_index = int(work.op[kernel]), int(work.call[kernel])
        module = source = ""
        phase = Phase.OTHER
        name = timeline.names[kernels.name[kernel]]
        if op >= 0:
            name = timeline.names[host.name[op]]
            module = timeline.names[host.module[op]] if host.module[op] >= 0 else ""
            source = timeline.names[host.source[op]] if host.source[op] >= 0 else ""
            phase = Phase(int(host.phase[op]))
        items.append(
            OpShare(
                call=timeline.calls[call_index] if call_index >= 0 else OpCall(name),
                work=groups.works[row],
                roof=groups.roofs[row],
                share=row,
                host_ns=float(groups.idle_before_ns[row]),
                module=module,
                source=source,
                phase=phase,
                count=float(groups.count[row]),
                weight=float(groups.weight[row]),
            )
        )
    return items


def _op_class(item: OpShare, regime: Any) -> str:
    if regime[item.share] == COLLECTIVE:
        return "collective"
    if regime[item.share] == COPY:
        return "copy"
    return op_class_of(item)


def _idle_rows(found: DeviceAttribution) -> list[IdleRow]:
    totals: dict[tuple[str, str | None, str | None], float] = {}
    for gap in found.attribution.idle:
        key = (gap.leaf.removeprefix("overhead."), gap.source, gap.detail)
        totals[key] = totals.get(key, 0.0) + gap.duration_ns * 1e-9
    rows = [
        IdleRow(cause=cause, time_s=time_s, source=source, detail=detail)
        for (cause, source, detail), time_s in totals.items()
    ]
    rows.sort(key=lambda row: -row.time_s)
    return rows


def _timeline_columns(timeline: Timeline, found: DeviceAttribution) -> TimelineColumns:
    lengths = timeline.steps[:, 1] - timeline.steps[:, 0]
    chosen = int(np.argsort(lengths, kind="stable")[len(lengths) // 2])
    low, high = (int(edge) for edge in timeline.steps[chosen])
    host, kernels = timeline.host, timeline.kernels
    rows = np.flatnonzero((host.start_ns < high) & (host.end_ns > low))
    if len(rows) > MOST_DRAWN:
        longest = np.argsort(-(host.end_ns - host.start_ns)[rows], kind="stable")[:MOST_DRAWN]
        rows = np.sort(rows[longest])
    work = np.flatnonzero((kernels.start_ns < high) & (kernels.end_ns > low))
    idle = np.flatnonzero((found.idle.start_ns < high) & (found.idle.end_ns > low))
    used, inverse = np.unique(
        np.concatenate([host.name[rows], kernels.name[work]]), return_inverse=True
    )
    names = [timeline.names[index] for index in used]

    def clipped(start: Any, end: Any) -> tuple[list[int], list[int]]:
        begin = np.maximum(start, low)
        return (begin - low).tolist(), np.maximum(np.minimum(end, high) - begin, 0).tolist()

    host_start, host_duration = clipped(host.start_ns[rows], host.end_ns[rows])
    kernel_start, kernel_duration = clipped(kernels.start_ns[work], kernels.end_ns[work])
    idle_start, idle_duration = clipped(found.idle.start_ns[idle], found.idle.end_ns[idle])
    regime = found.attribution.kernels.regime
    labels = {COLLECTIVE: "collective", COPY: "copy"}
    return TimelineColumns(
        names=names,
        host_start_ns=host_start,
        host_duration_ns=host_duration,
        host_thread=host.thread[rows].tolist(),
        host_kind=host.kind[rows].tolist(),
        host_name=inverse[: len(rows)].tolist(),
        kernel_start_ns=kernel_start,
        kernel_duration_ns=kernel_duration,
        kernel_stream=kernels.stream[work].tolist(),
        kernel_name=inverse[len(rows) :].tolist(),
        kernel_regime=[labels.get(int(regime[k]), REGIME_NAMES[regime[k]]) for k in work],
        idle_start_ns=idle_start,
        idle_duration_ns=idle_duration,
        idle_cause=[CAUSE_LEAVES[c].removeprefix("overhead.") for c in found.idle.cause[idle]],
    )


def _ceiling_notices(timeline: Timeline, ceilings: Ceilings | None) -> list[str]:
    if ceilings is not None:
        return list(ceilings.notices)
    name = timeline.device.name or "a device that the trace does not name"
    return [
        f"No ceilings for {name}: there is no roofline. Measure them there with "
        "`gobrrr ceilings --json FILE` and give them with --ceilings FILE."
    ]


def _counters(timeline: Timeline, items: Sequence[OpShare]) -> dict[str, float]:
    steps = len(timeline.steps)
    kind, host = timeline.kernels.kind, timeline.host.kind
    return {
        "kernels": float((kind == KernelKind.KERNEL).sum()) / steps,
        "copies": float((kind == KernelKind.COPY).sum()) / steps,
        "collectives": float((kind == KernelKind.COLLECTIVE).sum()) / steps,
        "synchronisations": float((host == HostKind.SYNCHRONISE).sum()) / steps,
        "flops": sum((i.work.flops or 0.0) * i.weight for i in items if i.work is not None),
        "bytes": sum((i.work.bytes_moved or 0) * i.weight for i in items if i.work is not None),
    }


def _speed_of_light(diagnosis: Diagnosis, ceilings: Ceilings | None) -> float | None:
    # Without ceilings, or with most kernel time unmodelled, the sum of the known roofs would
    # promise a speed that nothing supports.
    fraction = diagnosis.coverage.modelled_time_fraction
    if ceilings is None or fraction is None or fraction < MOSTLY_MODELLED:
        return None
    return sum(time_s for name, time_s in diagnosis.leaves.items() if name.endswith(".roof"))
