"""The article's test: double the data; what does not grow without a reason is overhead."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.analysis import Analysis
from gobrrr.attribution.cpu.run import CpuAnalysis, time_of
from gobrrr.attribution.leaves import top_levels
from gobrrr.diagnosis.records import spread_record
from gobrrr.diagnosis.schema import BatchDoubling, GrowthRow
from gobrrr.diagnosis.tables import describe_shapes
from gobrrr.timeline.ops import OpCall
from gobrrr.timeline.quantities import multiple, percent

# Two estimates of the overhead agree within this share of the step.
AGREEMENT = 0.10
# A smaller share of the step changes nothing that is said of it.
_WORTH_SAYING = 0.02
# Idle time of a device that kernels can grow into: it waits for the host, not the host for it.
_HIDES = ("overhead.python", "overhead.dispatch", "overhead.launch")


@dataclass(frozen=True)
class Side:
    """One of the two sizes: recorded calls, and of each its kernel's time and roof in ns per step.

    Attributes:
        has_kernel: whether anything ran for a call.
        roof_ns: NaN where unknown.
        overhead_s: of the step, by the split.
        hidden_s: idle time of a device that its host's work stands behind: kernels that take
            longer take it up before the step gets longer.
        step_s: the unprofiled step.
    """

    calls: tuple[OpCall, ...]
    has_kernel: NDArray[np.bool_]
    kernel_ns: NDArray[np.float64]
    roof_ns: NDArray[np.float64]
    overhead_s: float
    hidden_s: float
    step_s: float


def side_of(analysis: Analysis) -> Side:
    """A step on a processor or on a GPU, for the comparison."""
    calls = tuple(op.call for op in analysis.capture.recorded)
    hidden_ns = 0.0
    if isinstance(analysis, CpuAnalysis):
        attribution = analysis.result.attribution
        position, step_s = attribution.kernels.kernel, analysis.step.median
    else:
        attribution = analysis.found.attribution
        # What only ends the last window has no time.
        position = np.where(attribution.kernels.duration_ns > 0, analysis.position_of_kernels(), -1)
        step_s = attribution.step_ns * 1e-9
        hidden_ns = sum(attribution.leaves_ns[leaf] for leaf in _HIDES)
    shares, count = attribution.kernels, len(calls)
    known = position >= 0
    place = position[known]

    def total(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.bincount(place, weights=values[known], minlength=count), np.float64)

    return Side(
        calls=calls,
        has_kernel=np.bincount(place, minlength=count) > 0,
        kernel_ns=total(shares.duration_ns - shares.fixed_ns),
        roof_ns=total(shares.full_roof_ns),
        overhead_s=top_levels(attribution.leaves_ns)["overhead"] * 1e-9,
        hidden_s=hidden_ns * 1e-9,
        step_s=step_s,
    )


def compare_growth(
    single: Side, doubled: Side, once_ns: Sequence[int], twice_ns: Sequence[int]
) -> BatchDoubling:
    """Growth measured against growth expected from each op's work; both sides ran the same ops.

    Where no kernel of known work grows, nothing is held against anything: ``agrees`` is ``None``.

    Expected: a kernel grows by the ratio of its roofs (weights and optimizers have the same roof
    at both sizes and do not grow), one without a known roof as it was measured to, which says
    nothing of it; overhead does not grow. With kernels K, expected growth g and
    measured growth G, the kernels that would explain G are K G / g, and the rest of the step is
    the overhead that the test sees. What kernels of a device grow into its idle time, behind the
    host's work, is no growth of the step.
    """
    once, twice = spread_record(time_of(once_ns)), spread_record(time_of(twice_ns))
    step_s = once.median
    scale = step_s / single.step_s
    rows = _growth_rows(single, doubled)
    kernels_s = sum(row.time_s for row in rows) * scale
    unknown_s = sum(row.time_s for row in rows if row.expected_s is None) * scale
    kernels_grow_s = sum(_grown_s(row) - row.time_s for row in rows) * scale
    hidden_s = min(max(kernels_grow_s, 0.0), single.hidden_s * scale)
    expected_growth_s = kernels_grow_s - hidden_s
    growth_s = twice.median - once.median
    split_overhead_s = single.overhead_s * scale
    ratio = twice.median / once.median
    work_ratio = _work_ratio(single, doubled)
    expected_s = step_s + expected_growth_s
    known_grow_s = sum(_grown_s(row) - row.time_s for row in rows if row.expected_s) * scale
    overhead_s: float | None = None
    agrees: bool | None = None
    little_s = _WORTH_SAYING * step_s
    # Of kernels that are a small part of the step it is known that it will not grow.
    if known_grow_s > little_s or unknown_s <= little_s:
        agrees = abs(growth_s - expected_growth_s) <= AGREEMENT * step_s
        if expected_growth_s > little_s:
            explained_s = kernels_s * (growth_s + hidden_s) / kernels_grow_s
            overhead_s = min(step_s, max(0.0, step_s - explained_s))
            agrees = abs(overhead_s - split_overhead_s) <= AGREEMENT * step_s
    grew = "is unknown" if work_ratio is None else f"grew {multiple(work_ratio)}"
    took = f"2x the batch took {multiple(ratio)} the time"
    in_split = f"in the split {percent(split_overhead_s / step_s)} is overhead"
    if agrees is None:
        sentence = (
            f"{took}. No kernel whose work is known grows with it, so this says nothing of the "
            f"split: {in_split}."
        )
    else:
        measured = ""
        if unknown_s > little_s:
            measured = f" ({percent(unknown_s / step_s)} of the step is kernels of unknown work, "
            measured += "taken to grow as measured)"
        says = "This agrees" if agrees else "This disagrees"
        by_this = "what grows is a small part, or hides behind the host's work"
        if overhead_s is not None:
            by_this = (
                f"by this test {percent(overhead_s / step_s)} of the step does not grow with the "
                "data"
            )
        sentence = (
            f"{took}; the work {grew}, which predicts "
            f"{multiple(expected_s / step_s)}{measured}. {says} with the split: {by_this}; "
            f"{in_split}."
        )
    return BatchDoubling(
        time_s=once, doubled_time_s=twice, ratio=ratio, work_ratio=work_ratio,
        expected_s=expected_s, overhead_s=overhead_s, split_overhead_s=split_overhead_s,
        agrees=agrees, sentence=sentence, ops=rows,
    )  # fmt: skip


def same_ops(single: Side, doubled: Side) -> bool:
    """Whether both sizes ran the same ops in one order, so that each can be compared."""
    return [call.name for call in single.calls] == [call.name for call in doubled.calls]


def _grown_s(row: GrowthRow) -> float:
    return row.doubled_s if row.expected_s is None else row.expected_s


def _growth_rows(single: Side, doubled: Side) -> list[GrowthRow]:
    totals: dict[Any, list[Any]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0, False])
    for i in np.flatnonzero(single.has_kernel).tolist():
        call = single.calls[i]
        entry = totals[call.name, describe_shapes(call)]
        kernel_ns, roof_1 = float(single.kernel_ns[i]), float(single.roof_ns[i])
        roof_2 = float(doubled.roof_ns[i]) if doubled.has_kernel[i] else np.nan
        known = roof_1 > 0 and not np.isnan(roof_2)
        entry[0] += kernel_ns * 1e-9
        entry[1] += float(doubled.kernel_ns[i]) * 1e-9
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


def _work_ratio(single: Side, doubled: Side) -> float | None:
    known = ~(np.isnan(single.roof_ns) | np.isnan(doubled.roof_ns))
    once, twice = single.roof_ns[known].sum(), doubled.roof_ns[known].sum()
    return float(twice / once) if once > 0 else None
