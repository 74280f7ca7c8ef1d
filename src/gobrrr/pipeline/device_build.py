"""A device timeline (a trace's, or a live profile's) -> a ``Diagnosis``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from gobrrr.attribution.device import DeviceAttribution, attribute_device
from gobrrr.attribution.idle import CAUSE_LEAVES
from gobrrr.attribution.leaves import COLLECTIVE, COPY, REGIME_NAMES
from gobrrr.attribution.scaling import scale_to_step
from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.schema import (
    DeviceRecord,
    DeviceTime,
    Diagnosis,
    IdleRow,
    SlowStep,
    Spread,
    StepRecord,
    TimelineColumns,
)
from gobrrr.measure import summarise
from gobrrr.pipeline.records import ceiling_rows, level_rows, spread_record
from gobrrr.pipeline.tables import (
    PHASE_NAMES,
    OpShare,
    above_ceiling_rows,
    coverage_of,
    group_rows,
    op_rows,
)
from gobrrr.pipeline.verdict import regime_of, split_of, verdict_of
from gobrrr.timeline.data import HostKind, KernelKind, Phase, Timeline
from gobrrr.timeline.ops import OpCall
from gobrrr.work import work_of

TRAILING = "(after the last kernel)"
# What a report can draw smoothly; a longer step keeps its longest spans.
MOST_DRAWN = 200_000


def build_device_diagnosis(
    timeline: Timeline,
    ceilings: Ceilings | None,
    source: dict[str, Any],
    environment: dict[str, Any],
    unprofiled: Spread | None = None,
) -> tuple[Diagnosis, DeviceAttribution]:
    """Attribute the timeline and lay the result out as tables.

    ``unprofiled``: step time measured without the profiler, where there is one (a live run): the
    leaves are brought to its median.

    Raises ValueError if the timeline has no device work.
    """
    found = attribute_device(timeline, ceilings, work_of)
    step = _step_record(timeline, found.attribution.step_ns * 1e-9)
    if unprofiled is not None:
        found, scales = scale_to_step(found, unprofiled.median * 1e9)
        step.time_s, step.host_scale, step.kernel_scale = unprofiled, scales.host, scales.kernel
    attribution = found.attribution
    shares = attribution.kernels
    leaves = {name: ns * 1e-9 for name, ns in attribution.leaves_ns.items()}
    step_s = attribution.step_ns * 1e-9
    items = _op_shares(timeline, found)
    idle_s = sum(gap.duration_ns for gap in attribution.idle) * 1e-9
    trailing_s = max(0.0, idle_s - float(found.idle_before_ns.sum()) * 1e-9)
    regime, close = regime_of(leaves)

    def grouped(key: Callable[[OpShare], tuple[str, str | None]]) -> list[Any]:
        return group_rows(
            items, shares, key, step_s, trailing_host_s=trailing_s, trailing_name=TRAILING
        )

    figures = found.device_time
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
        device_time=DeviceTime(
            window_s=figures.window_ns / 1e9,
            busy_s=figures.busy_ns / 1e9,
            compute_kernels_s=figures.compute_kernels_ns / 1e9,
            collectives_s=figures.collectives_ns / 1e9,
            exposed_collectives_s=figures.exposed_collectives_ns / 1e9,
            exposed_copies_s=figures.exposed_copies_ns / 1e9,
        ),
        timeline=_timeline_columns(timeline, found),
        notices=[*timeline.notices, *attribution.notices, *_ceiling_notices(timeline, ceilings)],
        counters=_counters(timeline, found),
    )
    diagnosis.mfu, diagnosis.mfu_dtype = _mfu(items, ceilings, step_s)
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


def _op_shares(timeline: Timeline, found: DeviceAttribution) -> list[OpShare]:
    host, kernels, work = timeline.host, timeline.kernels, found.work
    steps = len(timeline.steps)
    launched = np.bincount(work.op[work.op >= 0], minlength=len(host) or 1)
    items = []
    for row in range(len(kernels)):
        op = int(work.op[row])
        module = source = ""
        phase = Phase.OTHER
        if op >= 0:
            call_index = int(host.call[op])
            name = timeline.names[host.name[op]]
            call = timeline.calls[call_index] if call_index >= 0 else OpCall(name)
            module = timeline.names[host.module[op]] if host.module[op] >= 0 else ""
            source = timeline.names[host.source[op]] if host.source[op] >= 0 else ""
            phase = Phase(int(host.phase[op]))
        else:
            call = OpCall(timeline.names[kernels.name[row]])
        items.append(
            OpShare(
                call=call,
                work=work.works[row],
                roof=work.roofs[row],
                share=row,
                host_ns=float(found.idle_before_ns[row]),
                module=module,
                source=source,
                phase=phase,
                count=1.0 / (steps * (launched[op] if op >= 0 else 1)),
                weight=1.0 / steps,
            )
        )
    return items


def _op_class(item: OpShare, regime: Any) -> str:
    if regime[item.share] == COLLECTIVE:
        return "collective"
    if regime[item.share] == COPY:
        return "copy"
    return "unknown" if item.work is None else item.work.op_class


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


def _counters(timeline: Timeline, found: DeviceAttribution) -> dict[str, float]:
    steps = len(timeline.steps)
    kind, host = timeline.kernels.kind, timeline.host.kind
    return {
        "kernels": float((kind == KernelKind.KERNEL).sum()) / steps,
        "copies": float((kind == KernelKind.COPY).sum()) / steps,
        "collectives": float((kind == KernelKind.COLLECTIVE).sum()) / steps,
        "synchronisations": float((host == HostKind.SYNCHRONISE).sum()) / steps,
        "flops": sum(w.flops or 0.0 for w in found.work.works if w is not None) / steps,
        "bytes": float(sum(w.bytes_moved or 0 for w in found.work.works if w is not None)) / steps,
    }


def _mfu(
    items: Sequence[OpShare], ceilings: Ceilings | None, step_s: float
) -> tuple[float | None, str | None]:
    by_dtype: dict[str, float] = {}
    for item in items:
        if item.work is not None and item.work.matrix_flops:
            dtype = item.work.compute_dtype
            by_dtype[dtype] = by_dtype.get(dtype, 0.0) + item.work.matrix_flops * item.weight
    if not by_dtype or step_s <= 0:
        return None, None
    dtype = max(by_dtype, key=lambda name: by_dtype[name])
    rate = None if ceilings is None else ceilings.matrix_flops_per_s(dtype)
    return (None if rate is None else sum(by_dtype.values()) / rate / step_s), dtype


def _speed_of_light(diagnosis: Diagnosis, ceilings: Ceilings | None) -> float | None:
    # Without ceilings, or with most kernel time unmodelled, the sum of the known roofs would
    # promise a speed that nothing supports.
    fraction = diagnosis.coverage.modelled_time_fraction
    if ceilings is None or fraction is None or fraction < 0.9:
        return None
    return sum(time_s for name, time_s in diagnosis.leaves.items() if name.endswith(".roof"))
