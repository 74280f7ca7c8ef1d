"""Peak memory of a step against its time: the points of the curve, and which are on its front."""

from __future__ import annotations

from gobrrr.diagnosis.schema import Diagnosis, MemoryCurve, MemoryPoint
from gobrrr.reports.tables import Column, Row, TextTable, time_scale
from gobrrr.timeline.names import plain_name
from gobrrr.timeline.quantities import multiple, percent, si

AS_IT_IS = "as it is"
_FRONT = "front"


def memory_table(diagnosis: Diagnosis) -> TextTable:
    """Each setting with its step time, its price in time, its peak memory and what it saves."""
    unit = time_scale(diagnosis).unit
    columns = (
        Column("activations kept", number=False, flexible=True),
        Column(unit),
        Column("time"),
        Column("memory"),
        Column("saved"),
        Column("", number=False),
    )
    curve = _curve(diagnosis)
    points = [] if curve is None else curve.points
    rows = tuple(_row(point, diagnosis) for point in points)
    beside = "" if curve is None else f", relative to {_reference(curve)}"
    return TextTable(f"Peak memory of a step against its time{beside}", columns, rows)


def _curve(diagnosis: Diagnosis) -> MemoryCurve | None:
    return None if diagnosis.fixes is None else diagnosis.fixes.memory_curve


def _reference(curve: MemoryCurve) -> str:
    return plain_name(curve.reference) if curve.reference else "the program as it is"


def _row(point: MemoryPoint, diagnosis: Diagnosis) -> Row:
    price = point.price
    span = multiple(price.median)
    if price.low != price.high:
        span += f" ({price.low:.2f} to {price.high:.2f})"
    return Row(
        (
            _label(point), time_scale(diagnosis).number(point.step_s), span,
            si(point.memory_bytes, "B"), _saved(point), _FRONT if point.on_front else "",
        )
    )  # fmt: skip


def _label(point: MemoryPoint) -> str:
    if point.budget is None:
        return plain_name(point.fix) if point.fix else AS_IT_IS
    return f"{percent(point.budget)}: {plain_name(point.fix)}"


def _saved(point: MemoryPoint) -> str:
    sign = "-" if point.saved_bytes < 0 else ""
    return f"{sign}{si(abs(point.saved_bytes), 'B')}"


def memory_lines(diagnosis: Diagnosis) -> list[str]:
    """The front in words, the most memory first; empty without a curve."""
    curve = _curve(diagnosis)
    if curve is None:
        return []
    named = [_bargain(point, curve) for point in curve.points if point.on_front]
    return [
        f"Pareto front of peak memory against step time, relative to {_reference(curve)}: "
        f"{'; '.join(named)}. Memory is the peak of the tensors allocated within a "
        "step."
    ]


def _bargain(point: MemoryPoint, curve: MemoryCurve) -> str:
    """What a point of the front gives and what for, beside the reference."""
    name = plain_name(point.fix) if point.fix else AS_IT_IS
    if point.fix == curve.reference:
        return f"{name} itself"
    memory = f"{'saves' if point.saved_bytes >= 0 else 'takes'} {si(abs(point.saved_bytes), 'B')}"
    memory += "" if point.saved_bytes >= 0 else " more"
    if point.price.low <= 1.0 <= point.price.high:
        return f"{name} {memory} in the same time, within the noise"
    change = point.price.median - 1.0
    return f"{name} {memory} for {percent(abs(change))} {'more' if change >= 0 else 'less'} time"
