"""The attribution of a run on a CPU as the record that every diagnosis is assembled from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from gobrrr.attribution.attributed import (
    MEAN,
    MEDIAN,
    READ_OF_ONE_VALUE,
    READS_COUNTED,
    READS_OF_LIBRARY,
    Attributed,
    AttributedOp,
    DrawnStep,
    StepTimes,
    ceiling_notices,
    recorded_step_times,
)
from gobrrr.attribution.collectives import match_collectives
from gobrrr.attribution.cpu.attribute import CpuAttribution, works_on
from gobrrr.attribution.cpu.causes import causes_of_lane, causes_of_overhead
from gobrrr.attribution.cpu.lane_of_trace import TraceLane
from gobrrr.attribution.cpu.network import NETWORK_LEAF, exposure_of, slept_for
from gobrrr.attribution.cpu.provisional import provisional_of
from gobrrr.attribution.cpu.run import CpuAnalysis
from gobrrr.attribution.cpu.sleep import with_sleep_apart
from gobrrr.attribution.lane import (
    COLLECTING,
    COMPILING,
    LEAF_OF_OWNER,
    LOADING,
    NETWORK,
    is_generated_kernel,
)
from gobrrr.attribution.leaves import IdleGap
from gobrrr.attribution.other_threads import concurrent_ops
from gobrrr.devices.ceilings import Ceilings
from gobrrr.live.calibration.fixed_cost import most_common_failures
from gobrrr.live.measurements import Measurements
from gobrrr.live.profiles.cpu_timeline import CpuCapture
from gobrrr.timeline.data import Device, HostKind, KernelKind, Kernels, Phase
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall
from gobrrr.timeline.quantities import count, percent
from gobrrr.work.estimate import Work

TRAILING = "(after the last op)"
# Overhead that has nothing to do with the op that happens to come next.
OF_NO_OP = {
    LOADING: "(waiting for data)",
    COLLECTING: "(garbage collection)",
    COMPILING: "(compilation)",
}


def attributed_cpu(
    measured: Measurements,
    analysis: CpuAnalysis,
    ceilings: Ceilings,
    device: Device,
    threads: int | None = None,
) -> Attributed:
    """A measured CPU step, attributed; ``threads`` is how many torch computed with."""
    result = analysis.result
    reconciled = result.reconciliation
    step = attributed_lane(
        analysis.capture,
        analysis.works,
        result,
        ceilings,
        StepTimes(
            time=analysis.step,
            basis=MEAN if measured.kind.varying else MEDIAN,
            samples_s=tuple(ns * 1e-9 for ns in measured.all_plain_ns),
            ended_s=tuple(measured.plain_ended_s),
            profiled_s=reconciled.profiled_ns * 1e-9,
            profiler_cost_s=reconciled.cost_ns * reconciled.cost_share * 1e-9,
            host_scale=reconciled.scale,
            kernel_scale=reconciled.scale,
            profiled_steps=len(measured.profiled),
            kind=measured.kind.name,
            what=measured.step_is,
            varying=measured.kind.varying,
            tokens=measured.kind.tokens,
            fused_optimizer=measured.fused_optimizer,
            wall=measured.kind.wall,
            seen=measured.kind.seen,
            taken_away=measured.taken_away,
            provisional=provisional_of(
                result,
                [effort.ran_ns for effort in measured.efforts_of_plain],
                analysis.page_faults * (ceilings.value("page_fault") or 0.0) * 1e9,
                threads,
            ),
        ),
        idle=causes_of_overhead(measured, analysis),
    )
    leaves_ns, idle = with_sleep_apart(step.leaves_ns, step.idle, measured, threads)
    return replace(
        step,
        leaves_ns=leaves_ns,
        idle=idle,
        device=device,
        threads=threads,
        counters=_counters(analysis, measured.kind.varying),
        module_classes=measured.module_classes,
        notices=tuple(_notices(measured, analysis, ceilings)),
    )


def attributed_lane(
    capture: CpuCapture,
    works: Sequence[Work | None],
    result: CpuAttribution,
    ceilings: Ceilings | None,
    step: StepTimes,
    *,
    idle: Sequence[IdleGap],
) -> Attributed:
    """A CPU step, attributed, wherever it came from; ``works`` are those of the recorded ops."""
    rank = capture.timeline.rank
    network = exposure_of(capture, result, slept_for(capture, result))
    return Attributed(
        device=capture.timeline.device,
        ceilings=ceilings,
        step=step,
        collectives=match_collectives([capture.timeline], [network], [rank], False)[0],
        communication_ns=result.attribution.leaves_ns[NETWORK_LEAF],
        leaves_ns=result.attribution.leaves_ns,
        ops=tuple(_ops(capture, works, result)),
        shares=result.attribution.kernels,
        drawn=_drawn(capture, result),
        idle=tuple(idle),
        beside_ns=_overhead_of_no_op(result),
        concurrent=concurrent_ops(capture.timeline),
    )


def attributed_trace_lane(
    lane: TraceLane, result: CpuAttribution, ceilings: Ceilings | None
) -> Attributed:
    """A recorded CPU step, attributed: its fixed costs and page faults are not known."""
    capture = lane.capture
    step = attributed_lane(
        capture,
        lane.works,
        result,
        ceilings,
        recorded_step_times(capture.timeline),
        idle=causes_of_lane(capture, result),
    )
    others = sum(other.count for other in result.other_kernels)
    # Whose an optimizer is, a trace does not tell; nearly all are torch's.
    ran = [
        (replace(op, by_library=op.phase is Phase.OPTIMIZER), calls)
        for op, calls in zip(capture.recorded, result.calls.tolist())
        if op.call.name == READ_OF_ONE_VALUE
    ]
    return replace(
        step,
        counters={"kernels": float(result.calls.sum()) + others, **counted_reads(ran)},
        notices=(
            *capture.timeline.notices,
            *ceiling_notices(capture.timeline.device.name, ceilings),
        ),
    )


def _overhead_of_no_op(result: CpuAttribution) -> dict[str, float]:
    host = result.host_by_op_ns
    found = {name: float(host[owner].sum()) for owner, name in OF_NO_OP.items()}
    last = float(host[:, -1].sum() - host[[*OF_NO_OP, NETWORK], -1].sum())
    return {**found, TRAILING: last}


def _ops(
    capture: CpuCapture, works: Sequence[Work | None], result: CpuAttribution
) -> list[AttributedOp]:
    shares = result.attribution.kernels
    row_of = {int(position): i for i, position in enumerate(shares.kernel) if position >= 0}
    of_no_op = [*OF_NO_OP, NETWORK]
    host = result.host_by_op_ns.sum(axis=0) - result.host_by_op_ns[of_no_op].sum(axis=0)
    items = [
        AttributedOp(
            op=op,
            work=works[position],
            roof=result.roofs[position],
            share=row_of.get(position, -1),
            host_ns=float(host[position]),
            count=float(result.calls[position]),
            weight=float(result.calls[position]),
        )
        for position, op in enumerate(capture.recorded)
    ]
    first_other = len(shares) - len(result.other_kernels)
    for offset, other in enumerate(result.other_kernels):
        op = StepOp(OpCall(other.name))
        row = first_other + offset
        items.append(AttributedOp(op, other.work, other.roof, row, 0.0, other.count, other.count))
    return items


def _drawn(capture: CpuCapture, result: CpuAttribution) -> DrawnStep:
    """The profiled step of median length; its kernels are the ops that do work."""
    timeline = capture.timeline
    host = timeline.host
    chosen = timeline.median_step
    low, high = (int(edge) for edge in timeline.steps[chosen])
    begin, stop = np.searchsorted(host.start_ns, [low, high])
    shares = result.attribution.kernels
    regime_of = np.full(len(capture.recorded) + 1, -1, np.int64)
    known = shares.kernel >= 0
    regime_of[shares.kernel[known]] = shares.regime[known]
    regime = regime_of[capture.position[begin:stop]]
    rows = np.flatnonzero(regime >= 0) + begin
    none = np.full(len(rows), -1, np.int64)
    pieces = result.steps[chosen]
    idle = np.flatnonzero(pieces.piece_owner > 0)
    return DrawnStep(
        names=timeline.names,
        window=(low, high),
        host=host.take(np.arange(begin, stop)),
        kernels=Kernels(
            start_ns=host.start_ns[rows],
            end_ns=host.end_ns[rows],
            stream=np.zeros(len(rows), np.int32),
            kind=np.full(len(rows), KernelKind.KERNEL, np.uint8),
            name=host.name[rows],
            op=rows,
            launch=none,
            bytes_moved=none,
            collective=none,
            twin=none,
        ),
        regime=regime[regime >= 0].astype(np.uint8),
        idle_start_ns=pieces.piece_start_ns[idle] + low,
        idle_end_ns=pieces.piece_end_ns[idle] + low,
        idle_leaf=tuple(LEAF_OF_OWNER[owner] for owner in pieces.piece_owner[idle].tolist()),
    )


def _counters(analysis: CpuAnalysis, varying: bool) -> dict[str, float]:
    """What a step does: as it was recorded, or of steps that vary what one does in the mean."""
    recorded, result = analysis.capture.recorded, analysis.result
    calls = result.calls.tolist() if varying else [1] * len(recorded)
    runs = list(zip(recorded, analysis.works, calls))
    kernels = sum(times for _, work, times in runs if works_on(work))
    # Calls in the mean hold the ops that the recorded step did not run.
    others = [k for k in result.other_kernels if not varying or is_generated_kernel(k.name)]
    return {
        "ops": float(sum(calls)),
        "kernels": float(kernels + sum(other.count for other in others)),
        **counted_reads([(op, times) for op, _, times in runs]),
        "page_faults": analysis.page_faults,
    }


def counted_reads(runs: Iterable[tuple[StepOp, float]]) -> dict[str, float]:
    """Counters of what ops, each so many times, read back to the host as one value."""
    reads = [(op, times) for op, times in runs if op.call.name == READ_OF_ONE_VALUE]
    return {
        READS_COUNTED: float(sum(times for _, times in reads)),
        READS_OF_LIBRARY: float(sum(times for op, times in reads if op.by_library)),
    }


def _notices(measured: Measurements, analysis: CpuAnalysis, ceilings: Ceilings) -> list[str]:
    notices = [*measured.notices, *ceilings.notices, *measured.load_notices]
    matched = analysis.capture.matched_fraction
    if not analysis.capture.recorded and not analysis.result.other_kernels:
        notices.append("The step ran no PyTorch op.")
    elif matched < 0.98:
        apart = any(not is_generated_kernel(k.name) for k in analysis.result.other_kernels)
        unmodelled = (
            " The work of those that it did not run is unknown, and their time unmodelled, unless "
            "all recorded ops of their name are alike."
            if apart
            else ""
        )
        notices.append(
            f"Only {percent(matched)} of the profiled ops match the recorded step: the program's "
            f"ops differ from step to step.{unmodelled}"
        )
    fixed = analysis.fixed
    if fixed.estimated:
        names = ", ".join(most_common_failures(fixed, analysis.capture.recorded))
        ops = "1 op" if fixed.estimated == 1 else f"{fixed.estimated:,} ops"
        notices.append(
            f"The fixed cost of {ops} is estimated ({names}): running such an op on other data "
            "may be unsafe, so a simpler one of its kind was timed instead."
            if names
            else f"The fixed cost of {ops} is estimated: none of its kind could be timed."
        )
    priced = ceilings.value("page_fault") is not None or measured.kind.fault_ns is not None
    if analysis.page_faults and not priced:
        notices.append(
            f"What a page fault costs is not known here: {count(analysis.page_faults)} of each "
            "step count in the kernels that they happen in."
        )
    kinds = analysis.capture.timeline.host.kind
    if (kinds == HostKind.COMPILATION).any():
        notices.append("torch.compile was compiling during the profiled steps.")
    return notices
