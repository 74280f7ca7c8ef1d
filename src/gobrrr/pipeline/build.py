"""CPU measurements -> a ``Diagnosis``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gobrrr.attribution.cpu import (
    COLLECTING,
    COMPILING,
    LOADING,
    OVERHEAD_LEAF,
    CpuAttribution,
    works_on,
)
from gobrrr.attribution.leaves import REGIME_NAMES
from gobrrr.capture.fixed_cost import most_common_failures
from gobrrr.capture.session import Measurements
from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.schema import (
    DeviceRecord,
    Diagnosis,
    SlowStep,
    StepRecord,
    TimelineColumns,
)
from gobrrr.pipeline.causes import causes_of_overhead
from gobrrr.pipeline.cpu_analysis import CpuAnalysis
from gobrrr.pipeline.environment import describe_environment
from gobrrr.pipeline.records import ceiling_rows, level_rows
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
from gobrrr.timeline.data import Device, HostKind, Phase
from gobrrr.timeline.ops import OpCall
from gobrrr.timeline.quantities import percent

# A step longer than this many medians is slow (DESIGN section 3).
SLOW_STEP = 1.5
TRAILING = "(after the last op)"
# Owners whose time has nothing to do with the op that happens to come next.
OF_NO_OP = {
    LOADING: "(waiting for data)",
    COLLECTING: "(garbage collection)",
    COMPILING: "(compilation)",
}


def device_record(device: Device, ceilings: Ceilings, threads: int | None) -> DeviceRecord:
    """The device and its ceilings, as saved."""
    return DeviceRecord(
        name=device.name,
        kind=device.kind,
        threads=threads,
        memory_bytes=device.memory_bytes,
        ceilings=ceiling_rows(ceilings),
        levels=level_rows(ceilings),
    )


def build_cpu_diagnosis(
    measured: Measurements,
    analysis: CpuAnalysis,
    ceilings: Ceilings,
    device: Device,
    source: dict[str, Any],
) -> Diagnosis:
    """The saved object, without batch doubling and findings, which the caller adds."""
    result = analysis.result
    leaves = {name: ns * 1e-9 for name, ns in result.attribution.leaves_ns.items()}
    shares = result.attribution.kernels
    items = _op_shares(analysis)
    step_s = analysis.step.median
    regime, close = regime_of(leaves)
    environment = describe_environment()
    idle = causes_of_overhead(measured, analysis)

    def grouped(key: Callable[[OpShare], tuple[str, str | None]]) -> list[Any]:
        return group_rows(items, shares, key, step_s, _overhead_of_no_op(result))

    diagnosis = Diagnosis(
        environment=environment,
        source=source,
        device=device_record(device, ceilings, environment["threads"]),
        step=_step_record(measured, analysis),
        split=split_of(leaves),
        leaves=leaves,
        regime=regime,
        close=close,
        coverage=coverage_of(items, shares, 0.0),
        above_ceiling=above_ceiling_rows(items, shares),
        ops=op_rows([item for item in items if item.share >= 0], shares),
        classes=grouped(lambda item: (op_class_of(item), None)),
        modules=grouped(lambda item: (item.module, PHASE_NAMES[item.phase])),
        lines=grouped(lambda item: (item.source, PHASE_NAMES[item.phase])),
        phases=grouped(lambda item: (PHASE_NAMES[item.phase], None)),
        idle=idle,
        timeline=_timeline_columns(analysis),
        notices=_notices(measured, analysis, ceilings),
        counters=_counters(analysis),
    )
    diagnosis.mfu, diagnosis.mfu_dtype = mfu_of(
        ((work, 1.0) for work in analysis.works), ceilings, step_s
    )
    diagnosis.speed_of_light_s = _speed_of_light(leaves)
    diagnosis.verdict = verdict_of(diagnosis)
    diagnosis.check()
    return diagnosis


def _overhead_of_no_op(result: CpuAttribution) -> dict[str, float]:
    host = result.host_by_op_ns
    found = {name: float(host[owner].sum()) * 1e-9 for owner, name in OF_NO_OP.items()}
    last = float(host[:, -1].sum() - host[list(OF_NO_OP), -1].sum()) * 1e-9
    return {**found, TRAILING: last}


def _op_shares(analysis: CpuAnalysis) -> list[OpShare]:
    result = analysis.result
    shares = result.attribution.kernels
    row_of = {int(position): i for i, position in enumerate(shares.kernel) if position >= 0}
    host = result.host_by_op_ns.sum(axis=0) - result.host_by_op_ns[list(OF_NO_OP)].sum(axis=0)
    items = [
        OpShare(
            call=op.call,
            work=analysis.works[position],
            roof=result.roofs[position],
            share=row_of.get(position, -1),
            host_ns=float(host[position]),
            module=op.module,
            source=op.source,
            phase=op.phase,
        )
        for position, op in enumerate(analysis.capture.recorded)
    ]
    first_other = len(shares) - len(result.other_kernels)
    for offset, other in enumerate(result.other_kernels):
        items.append(
            OpShare(
                OpCall(other.name), other.work, other.roof, first_other + offset, 0.0, "", "",
                Phase.OTHER, other.count, other.count,
            )
        )  # fmt: skip
    return items


def _step_record(measured: Measurements, analysis: CpuAnalysis) -> StepRecord:
    samples = measured.all_plain_ns
    reconciled = analysis.result.reconciliation
    median_ns = analysis.step.median * 1e9
    slow = [
        SlowStep(index=i, time_s=ns * 1e-9)
        for i, ns in enumerate(samples)
        if ns > SLOW_STEP * median_ns
    ]
    trains = any(op.phase.name == "BACKWARD" for op in analysis.capture.recorded)
    return StepRecord(
        time_s=analysis.step,
        kind="training step" if trains else "step",
        profiled_time_s=reconciled.profiled_ns * 1e-9,
        profiler_cost_s=reconciled.cost_ns * reconciled.cost_share * 1e-9,
        host_scale=reconciled.scale,
        kernel_scale=reconciled.scale,
        slow_steps=slow,
        samples_s=[ns * 1e-9 for ns in samples],
        profiled_steps=len(measured.profiled),
    )


def _timeline_columns(analysis: CpuAnalysis) -> TimelineColumns:
    timeline = analysis.capture.timeline
    host = timeline.host
    lengths = timeline.steps[:, 1] - timeline.steps[:, 0]
    chosen = int(np.argsort(lengths)[len(lengths) // 2])
    low, high = (int(edge) for edge in timeline.steps[chosen])
    begin, stop = np.searchsorted(host.start_ns, [low, high])
    rows = np.arange(begin, stop)
    kernels = analysis.result.attribution.kernels
    regime_of_position = {
        int(p): REGIME_NAMES[r] for p, r in zip(kernels.kernel, kernels.regime) if p >= 0
    }
    position = analysis.capture.position[rows]
    is_kernel = np.array([int(p) in regime_of_position for p in position], bool)
    work_rows = rows[is_kernel]
    pieces = analysis.result.steps[chosen]
    idle = np.flatnonzero(pieces.piece_owner > 0)
    causes = [OVERHEAD_LEAF[int(o)].removeprefix("overhead.") for o in pieces.piece_owner[idle]]
    return TimelineColumns(
        names=list(timeline.names),
        host_start_ns=(host.start_ns[rows] - low).tolist(),
        host_duration_ns=(np.minimum(host.end_ns[rows], high) - host.start_ns[rows]).tolist(),
        host_thread=host.thread[rows].tolist(),
        host_kind=host.kind[rows].tolist(),
        host_name=host.name[rows].tolist(),
        kernel_start_ns=(host.start_ns[work_rows] - low).tolist(),
        kernel_duration_ns=(host.end_ns[work_rows] - host.start_ns[work_rows]).tolist(),
        kernel_stream=[0] * len(work_rows),
        kernel_name=host.name[work_rows].tolist(),
        kernel_regime=[regime_of_position[int(p)] for p in position[is_kernel]],
        idle_start_ns=pieces.piece_start_ns[idle].tolist(),
        idle_duration_ns=(pieces.piece_end_ns - pieces.piece_start_ns)[idle].tolist(),
        idle_cause=causes,
    )


def _speed_of_light(leaves: dict[str, float]) -> float:
    return sum(time_s for name, time_s in leaves.items() if name.endswith(".roof"))


def _counters(analysis: CpuAnalysis) -> dict[str, float]:
    works = [(work, 1.0) for work in analysis.works if work is not None]
    others = analysis.result.other_kernels
    works += [(other.work, other.count) for other in others if other.work is not None]
    kernels = sum(works_on(work) for work in analysis.works) + sum(o.count for o in others)
    syncs = sum(op.call.name == "aten::_local_scalar_dense" for op in analysis.capture.recorded)
    return {
        "ops": float(len(analysis.capture.recorded)),
        "kernels": float(kernels),
        "flops": float(sum((work.flops or 0.0) * count for work, count in works)),
        "bytes": float(sum((work.bytes_moved or 0) * count for work, count in works)),
        "reads_of_one_value": float(syncs),
        "page_faults": float(sum(op.page_faults for op in analysis.capture.recorded)),
    }


def _notices(measured: Measurements, analysis: CpuAnalysis, ceilings: Ceilings) -> list[str]:
    notices = [*measured.notices, *ceilings.notices]
    if measured.disturbance:
        cause = measured.disturbance[0].upper() + measured.disturbance[1:]
        notices.append(f"{cause}: times are too long by an unknown amount.")
    matched = analysis.capture.matched_fraction
    if matched < 0.98:
        notices.append(
            f"Only {percent(matched)} of the profiled ops match the recorded step: the program's "
            "ops differ from step to step. Unmatched ops count as dispatch."
        )
    fixed = analysis.fixed
    if fixed.estimated:
        names = ", ".join(most_common_failures(fixed, analysis.capture.recorded))
        notices.append(
            f"The fixed cost of {fixed.estimated} ops is estimated ({names}): they are not known "
            "to be safe on other data than the program's, so simpler ops of their kind were timed."
        )
    kinds = analysis.capture.timeline.host.kind
    if (kinds == HostKind.COMPILATION).any():
        notices.append("torch.compile was compiling during the profiled steps.")
    return notices
