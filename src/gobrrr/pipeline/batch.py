"""The article's test: double the data; what does not grow without a reason is overhead."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from gobrrr.attribution.cpu_run import CpuAnalysis, Progress, analyse_cpu, time_of
from gobrrr.attribution.leaves import top_levels
from gobrrr.capture.session import Measurements, Plan
from gobrrr.capture.workload import Workload
from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.records import spread_record
from gobrrr.diagnosis.schema import BatchDoubling, GrowthRow
from gobrrr.diagnosis.tables import describe_shapes
from gobrrr.timeline.data import Device
from gobrrr.timeline.errors import GobrrrError
from gobrrr.timeline.quantities import multiple, percent, time_text

if TYPE_CHECKING:
    from gobrrr.pipeline.live import Diagnosed

# Two estimates of the overhead agree within this share of the step.
AGREEMENT = 0.10
# Seconds that the test may take where nobody asked for it.
BUDGET_S = 20.0


def double_batch(
    work: Workload,
    single: Diagnosed,
    ceilings: Ceilings,
    device: Device,
    progress: Progress,
    measure_step: Callable[..., Measurements],
    *,
    always: bool = False,
) -> BatchDoubling | str:
    """Run the workload at 1x and 2x; returns the comparison, or a sentence why there is none.

    ``measure_step(step, plan, *, modules, progress)`` runs a callable through every phase.
    A test that takes longer than ``BUDGET_S`` is not run, unless ``always``.
    """
    try:
        doubled = work.with_batch_repeated(2)
    except GobrrrError as error:
        return f"No batch test: {error}."
    assert single.analysis is not None
    # Some seven steps of twice the data to measure, then five of each to compare.
    takes_s = median(single.measured.all_plain_ns) * 1e-9 * (7 * 2 + 5 * 3)
    if not always and takes_s > BUDGET_S:
        return (
            f"No batch test: on steps this long it takes about {time_text(takes_s)}. "
            "batch_test=True (--batch-test) runs it."
        )
    modules = {"": work.model} if hasattr(work.model, "named_modules") else None

    def show(phase: str, done: int, wanted: int) -> None:
        progress(f"batch test: {phase}", done, wanted)

    try:
        measured = measure_step(doubled.step, Plan(), modules=modules, progress=show)
        analysis = analyse_cpu(measured, ceilings, device, show)
        # The two are timed again, alternately: the profiled runs were minutes apart.
        once_ns, twice_ns = _alternate(work, doubled)
    except GobrrrError as error:
        return f"No batch test: on twice the data {error}."
    return compare_growth(single.analysis, analysis, once_ns, twice_ns)


def _alternate(
    once: Workload, twice: Workload, seconds: float = 2.0
) -> tuple[list[int], list[int]]:
    from time import perf_counter_ns

    def timed(step: Any) -> int:
        begin = perf_counter_ns()
        result = step()
        length = perf_counter_ns() - begin
        del result
        return length

    for step in (once.step, twice.step):
        timed(step)
    pairs: tuple[list[int], list[int]] = ([], [])
    spent = 0
    while len(pairs[0]) < 5 or (spent < seconds * 1e9 and len(pairs[0]) < 100):
        for step, samples in zip((once.step, twice.step), pairs):
            samples.append(timed(step))
            spent += samples[-1]
        if spent > 30e9:
            break
    return pairs


def compare_growth(
    single: CpuAnalysis, doubled: CpuAnalysis, once_ns: Sequence[int], twice_ns: Sequence[int]
) -> BatchDoubling:
    """Growth measured against growth expected from each op's work.

    Expected: a kernel grows by the ratio of its roofs (weights and optimizers have the same roof
    at both sizes and do not grow); overhead does not grow. With kernels K, expected growth g and
    measured growth G, the kernels that would explain G are K G / g, and the rest of the step is
    the overhead that the test sees.
    """
    once, twice = spread_record(time_of(once_ns)), spread_record(time_of(twice_ns))
    step_s = once.median
    scale = step_s / single.step.median
    rows = _growth_rows(single, doubled)
    kernels_s = sum(row.time_s for row in rows) * scale
    expected_growth_s = sum((row.expected_s or row.time_s) - row.time_s for row in rows) * scale
    growth_s = twice.median - once.median
    leaves = single.result.attribution.leaves_ns
    split_overhead_s = top_levels(leaves)["overhead"] * 1e-9 * scale
    if expected_growth_s > 0.02 * step_s:
        overhead_s = min(step_s, max(0.0, step_s - kernels_s * growth_s / expected_growth_s))
        agrees = abs(overhead_s - split_overhead_s) <= AGREEMENT * step_s
    else:
        # Nothing that grows: the test has nothing to say but that time did not grow either.
        overhead_s = split_overhead_s
        agrees = growth_s <= AGREEMENT * step_s
    ratio = twice.median / once.median
    work_ratio = _work_ratio(single, doubled)
    expected_s = step_s + expected_growth_s
    says = "Agrees" if agrees else "Disagrees"
    sentence = (
        f"2x the batch took {multiple(ratio)} the time; "
        + (
            f"the work grew {multiple(work_ratio)}"
            if work_ratio is not None
            else "the work is unknown"
        )
        + f", which predicts {multiple(expected_s / step_s)}. {says} with the split: by this test "
        f"{percent(overhead_s / step_s)} of the step does not grow with the data, the split says "
        f"{percent(split_overhead_s / step_s)} is overhead."
    )
    return BatchDoubling(
        time_s=once, doubled_time_s=twice, ratio=ratio, work_ratio=work_ratio,
        expected_s=expected_s, overhead_s=overhead_s, split_overhead_s=split_overhead_s,
        agrees=agrees, sentence=sentence, ops=rows,
    )  # fmt: skip


def _growth_rows(single: CpuAnalysis, doubled: CpuAnalysis) -> list[GrowthRow]:
    same = [o.call.name for o in single.capture.recorded] == [
        o.call.name for o in doubled.capture.recorded
    ]
    before, after = single.result.attribution.kernels, doubled.result.attribution.kernels
    row_after = {int(p): i for i, p in enumerate(after.kernel) if p >= 0} if same else {}
    totals: dict[Any, list[Any]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0, False])
    for i, position in enumerate(before.kernel):
        if position < 0:
            continue
        call = single.capture.recorded[position].call
        entry = totals[call.name, describe_shapes(call)]
        kernel_ns = before.duration_ns[i] - before.fixed_ns[i]
        j = row_after.get(int(position))
        roof_1 = before.full_roof_ns[i]
        roof_2 = after.full_roof_ns[j] if j is not None else np.nan
        known = bool(roof_1 > 0) and not np.isnan(roof_2)
        entry[0] += kernel_ns * 1e-9
        entry[1] += (after.duration_ns[j] - after.fixed_ns[j]) * 1e-9 if j is not None else 0.0
        entry[2] += kernel_ns * (roof_2 / roof_1 if known else 1.0) * 1e-9
        entry[3] += 1
        entry[4] |= not known
    rows = [
        GrowthRow(
            name=name, shapes=shapes, count=count, time_s=once_s, doubled_s=twice_s,
            expected_s=None if unknown else expected_s,
            note="growth unknown" if unknown else None,
        )
        for (name, shapes), (once_s, twice_s, expected_s, count, unknown) in totals.items()
    ]  # fmt: skip
    rows.sort(key=lambda row: -row.time_s)
    return rows


def _work_ratio(single: CpuAnalysis, doubled: CpuAnalysis) -> float | None:
    once = np.nansum(single.result.attribution.kernels.full_roof_ns)
    twice = np.nansum(doubled.result.attribution.kernels.full_roof_ns)
    return float(twice / once) if once > 0 else None
