"""What was measured of each setting of the memory budget, as one curve of memory against time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gobrrr.diagnosis.fix_schema import FAILED, MemoryCurve, MemoryPoint, Ratio, Verification
from gobrrr.fixes.fix import Fix

# What ``torch.compile`` keeps without the setting.
WHOLE_BUDGET = 1.0


@dataclass(frozen=True, slots=True)
class _Measured:
    fix: str
    budget: float | None
    memory_bytes: int
    speedup: Ratio


def memory_curve(tried: Sequence[tuple[Fix, Verification | None]]) -> MemoryCurve | None:
    """The curve that these trials make; ``None`` unless a setting of the budget was measured.

    Each trial gives its step's time as a ratio to that of the program as it is, measured in turns,
    so that two settings are compared through it. A trial that failed is no point: its step computes
    something else.
    """
    settings = [(fix, trial) for fix, trial in tried if fix.setting is not None]
    base = next((fix.variant_of for fix, _ in settings), "")
    wanted = [(fix, trial, WHOLE_BUDGET) for fix, trial in tried if fix.name == base]
    wanted += [(fix, trial, fix.setting or 0.0) for fix, trial in settings]
    points: list[_Measured] = []
    before_s: list[float] = []
    before_bytes: list[int] = []
    for fix, trial, budget in wanted:
        if trial is None or trial.verdict == FAILED:
            continue
        if trial.speedup is None or trial.before_s is None or trial.step_memory_bytes is None:
            continue
        points.append(_Measured(fix.name, budget, trial.step_memory_bytes, trial.speedup))
        before_s.append(trial.before_s)
        if trial.step_memory_before_bytes is not None:
            before_bytes.append(trial.step_memory_before_bytes)
    if all(point.fix == base for point in points):
        return None
    if before_bytes:
        memory = round(median(before_bytes))
        points.append(_Measured("", None, memory, Ratio(median=1.0, low=1.0, high=1.0)))
    reference = next((point for point in points if point.fix in (base, "")), None)
    if reference is None:
        return None
    points.sort(key=lambda point: (-point.memory_bytes, 1.0 / point.speedup.median))
    return MemoryCurve(
        reference=reference.fix,
        points=[_point(point, reference, points, median(before_s)) for point in points],
    )


def _point(
    point: _Measured, reference: _Measured, points: Sequence[_Measured], as_it_is_s: float
) -> MemoryPoint:
    over, own = reference.speedup, point.speedup
    # Two ratios to the same step; the widest quotient of their intervals, as they are independent.
    price = Ratio(
        median=over.median / own.median, low=over.low / own.high, high=over.high / own.low
    )
    if point is reference:
        price = Ratio(median=1.0, low=1.0, high=1.0)
    return MemoryPoint(
        fix=point.fix, budget=point.budget, step_s=as_it_is_s / own.median,
        memory_bytes=point.memory_bytes, price=price,
        saved_bytes=reference.memory_bytes - point.memory_bytes,
        on_front=not any(_beats(other, point) for other in points),
    )  # fmt: skip


def _beats(other: _Measured, point: _Measured) -> bool:
    faster = other.speedup.median - point.speedup.median
    smaller = point.memory_bytes - other.memory_bytes
    return faster >= 0 and smaller >= 0 and (faster > 0 or smaller > 0)
