"""CPU measurements -> works, fixed costs and attribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gobrrr.attribution.attributed import MEAN, MEDIAN
from gobrrr.attribution.cpu.attribute import CpuAttribution, attribute_cpu, works_on
from gobrrr.attribution.mean_work import Float64
from gobrrr.attribution.recorded_work import works_of, works_of_mean_step
from gobrrr.devices.ceilings import Ceilings
from gobrrr.live.calibration.calibration import Calibrate
from gobrrr.live.calibration.fixed_cost import FixedCosts
from gobrrr.live.measurements import Measurements
from gobrrr.live.profiles.cpu_timeline import CpuCapture, build_cpu_capture
from gobrrr.live.profiles.profile import ProfilerCost
from gobrrr.measure import Summary, summarise
from gobrrr.timeline.data import Device
from gobrrr.work import work_of
from gobrrr.work.estimate import Work
from gobrrr.work.generated_cpp import work_of_cpp_kernel

# Faults of timed steps are spread over the ops that had them while recorded, so much more at most.
MOST_MORE = 3.0


@dataclass(frozen=True)
class CpuAnalysis:
    """Everything between the raw measurements and the tables, for those who compare two runs.

    ``page_faults``: of a step when nothing is attached to it, as far as ops are known to have them.
    """

    capture: CpuCapture
    works: tuple[Work | None, ...]
    fixed: FixedCosts
    cost: ProfilerCost
    result: CpuAttribution
    step: Summary
    page_faults: float


def time_of(samples_ns: Sequence[int]) -> Summary:
    """Median, mean and interval of step times, in seconds."""
    return summarise([sample * 1e-9 for sample in samples_ns])


def analyse_cpu(
    measured: Measurements, ceilings: Ceilings, device: Device, calibrate: Calibrate
) -> CpuAnalysis:
    """Match and attribute, with what ``calibrate`` finds of the ops that have work."""
    works = works_of(measured.recorded or [])
    found = calibrate(measured, np.array([works_on(work) for work in works], bool))
    return attribute_measurements(
        measured, works, found.profiler, found.fixed, ceilings, device, found.release_ns_per_fault
    )


def attribute_measurements(
    measured: Measurements,
    works: tuple[Work | None, ...],
    cost: ProfilerCost,
    fixed: FixedCosts,
    ceilings: Ceilings,
    device: Device,
    release_ns_per_fault: float = 0.0,
) -> CpuAnalysis:
    """Match and attribute what was measured and calibrated: plain data in, plain data out."""
    capture = build_cpu_capture(
        measured.profiled, measured.recorded or [], device, measured.groups, measured.own_rank
    )
    recorded = capture.recorded
    works = tuple(
        work if ran.call is seen.call else work_of(ran.call)
        for work, ran, seen in zip(works, recorded, measured.recorded or [])
    )
    step, kind = time_of(measured.all_plain_ns), measured.kind
    faults, calls = np.array([op.page_faults for op in recorded], np.float64), None
    if kind.others:
        works, calls, faults = works_of_mean_step(recorded, works, kind)
    faults = faults_of_timed_steps(faults, kind.page_faults, calls)
    step_faults = faults_of_step(faults, calls)
    # Of unknown cost they are a part of the kernels that they happen in, which is said.
    fault_ns = (ceilings.value("page_fault") or 0.0) * 1e9
    if kind.fault_ns is not None:
        # What these steps themselves tell, less what giving the page back takes of it.
        fault_ns = max(0.0, kind.fault_ns - release_ns_per_fault)
    result = attribute_cpu(
        capture,
        works,
        ceilings,
        (step.mean if kind.varying else step.median) * 1e9,
        basis=MEAN if kind.varying else MEDIAN,
        calls=calls,
        fixed_ns=fixed.time_ns,
        fault_ns=faults * fault_ns,
        cost=cost,
        release_ns=release_ns_per_fault * step_faults,
        generated={name: work_of_cpp_kernel(source) for name, source in measured.generated.items()},
    )
    return CpuAnalysis(capture, works, fixed, cost, result, step, step_faults)


def faults_of_step(faults: Float64, calls: Float64 | None) -> float:
    """Page faults of a step that runs each op so often (``None``: once)."""
    return float(faults.sum() if calls is None else (faults * calls).sum())


def faults_of_timed_steps(
    recorded: Float64, timed: float | None, calls: Float64 | None = None
) -> Float64:
    """Page faults of one call of each op in a step that nothing is attached to.

    The recorded step tells which ops bring in fresh memory; how much of it a step brings in at all
    is counted while it is timed (``None``: it was not). While a step is recorded the allocator
    gives back memory that it would otherwise use again, or keeps what it would otherwise give
    back: then the ops seen to bring in memory bring in more of it, up to ``MOST_MORE`` times, since
    others may be those that do.
    """
    total = faults_of_step(recorded, calls)
    if timed is None or total <= 0:
        return recorded
    return recorded * min(timed / total, MOST_MORE)
