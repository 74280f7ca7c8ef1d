"""The report in a notebook cell: verdict, split and roofline, as markup that needs no script.

Notebooks strip scripts from output that they do not trust, so the roofline is drawn here, in SVG.
Styles are inside, under one class, so that they and the notebook's leave each other alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from markupsafe import Markup

from gobrrr.diagnosis.schema import Diagnosis, OpRow
from gobrrr.reports import sentences
from gobrrr.reports.html import render_page
from gobrrr.reports.html.view import page_of, regime_class
from gobrrr.timeline.names import op_name, plain_name
from gobrrr.timeline.quantities import share, si, time_text

WIDTH, HEIGHT = 720, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 12, 40
# The roofline of a notebook is a summary: the ops that take nearly all of the time.
_MOST_MARKS = 200
_LARGEST = 22.0


@dataclass(frozen=True, slots=True)
class Mark:
    """One op: centre and half width in pixels, a class of the style sheet, and its tooltip."""

    x: float
    y: float
    radius: float
    regime: str
    title: str


@dataclass(frozen=True, slots=True)
class Line:
    """A roof from (``x1``, ``y1``) to (``x2``, ``y2``) in pixels.

    ``angle`` in degrees is that of its label, which stands ``shift`` pixels under it.
    """

    x1: float
    y1: float
    x2: float
    y2: float
    label: str
    angle: float = 0.0
    shift: float = -5.0


@dataclass(frozen=True, slots=True)
class Tick:
    """A grid line at pixel ``at`` with its label."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Roofline:
    """A log-log chart in pixels of ``WIDTH`` by ``HEIGHT``."""

    marks: tuple[Mark, ...]
    roofs: tuple[Line, ...]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]


@dataclass(frozen=True, slots=True)
class _Axis:
    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        log = math.log10(min(max(value, self.low), self.high))
        bottom, top = math.log10(self.low), math.log10(self.high)
        place = (log - bottom) / (top - bottom)
        return round(self.start + place * (self.end - self.start), 1)

    def ticks(self, most: int) -> list[float]:
        low, high = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
        every = max(1, math.ceil((high - low + 1) / most))
        return [10.0**e for e in range(low, high + 1) if e % every == 0]


def notebook_html(diagnosis: Diagnosis) -> str:
    """A ``div`` with everything in it."""
    page = page_of(diagnosis)
    return render_page(
        "notebook.html.j2",
        page=page,
        light=sentences.speed_of_light(diagnosis),
        roofline=roofline_of(diagnosis),
        width=WIDTH,
        height=HEIGHT,
        right=WIDTH - _RIGHT,
        left=_LEFT,
        top=_TOP,
        bottom=HEIGHT - _BOTTOM,
        notebook_style=Markup(_STYLE),
    )


def roofline_of(diagnosis: Diagnosis) -> Roofline | None:
    """``None`` if no op has a known intensity and rate."""
    ops = [op for op in diagnosis.ops if _placeable(op)][:_MOST_MARKS]
    if not ops:
        return None
    compute = _compute_roofs(diagnosis, ops)
    memory = _memory_roofs(diagnosis)
    intensities = [op.intensity or 0.0 for op in ops]
    rates = [op.flops_per_s or 0.0 for op in ops]
    ridges = [c / m for _, c in compute for _, m in memory]
    x = _Axis(
        min(intensities + ridges) / 2, max(intensities + [4 * r for r in ridges]) * 2,
        _LEFT, WIDTH - _RIGHT,
    )  # fmt: skip
    y = _Axis(min(rates) / 2, max(rates + [c for _, c in compute]) * 2, HEIGHT - _BOTTOM, _TOP)
    top = max((c for _, c in compute), default=y.high)
    fastest = max((m for _, m in memory), default=None)
    # Rates grow by ten where intensities do: one angle for all lines of bandwidth.
    decade_x = (x.end - x.start) / math.log10(x.high / x.low)
    decade_y = (y.end - y.start) / math.log10(y.high / y.low)
    angle = round(math.degrees(math.atan2(decade_y, decade_x)), 1)
    roofs: list[Line] = []
    for i, (label, rate) in enumerate(memory):
        start, end = max(x.low, y.low / rate), min(x.high, top / rate)
        last = 0 < i == len(memory) - 1
        if start < end:
            at = (x(start), y(rate * start), x(end), y(rate * end))
            roofs.append(Line(*at, label, angle, 13.0 if last else -5.0))
    heights: list[float] = []
    for label, rate in compute:
        start = max(x.low, rate / fastest) if fastest else x.low
        hidden = any(abs(y(rate) - other) < 12 for other in heights)
        heights.append(y(rate))
        roofs.append(Line(x(start), y(rate), WIDTH - _RIGHT, y(rate), "" if hidden else label))
    most_s = max(op.time_s for op in ops)
    marks = [
        Mark(
            x(op.intensity or 0.0), y(op.flops_per_s or 0.0),
            round(max(2.5, _LARGEST * math.sqrt(op.time_s / most_s)), 1),
            regime_class(op.regime), _title(op, diagnosis),
        )
        for op in sorted(ops, key=lambda op: -op.time_s)
    ]  # fmt: skip
    return Roofline(
        tuple(marks),
        tuple(roofs),
        tuple(Tick(x(value), si(value)) for value in x.ticks(9)),
        tuple(Tick(y(value), si(value)) for value in y.ticks(6)),
    )


def _placeable(op: OpRow) -> bool:
    values = (op.intensity, op.flops_per_s, op.time_s)
    return all(v is not None and math.isfinite(v) and v > 0 for v in values)


def _compute_roofs(diagnosis: Diagnosis, ops: list[OpRow]) -> list[tuple[str, float]]:
    """Ceilings of the units and dtypes that these ops compute in."""
    used = {f"{op.unit}.{op.dtype}" for op in ops}
    return [
        (f"{plain_name(row.name).replace('.', ' ')} {si(row.value, row.unit)}", row.value)
        for row in diagnosis.device.ceilings
        if row.name in used and math.isfinite(row.value) and row.value > 0
    ]


def _memory_roofs(diagnosis: Diagnosis) -> list[tuple[str, float]]:
    best = [
        (level.name, max((rate for _, rate in level.rates if math.isfinite(rate)), default=0.0))
        for level in diagnosis.device.levels
    ]
    best.sort(key=lambda entry: -entry[1])
    return [(f"{plain_name(name)} {si(rate, 'B/s')}", rate) for name, rate in best if rate > 0]


def _title(op: OpRow, diagnosis: Diagnosis) -> str:
    time = f"{time_text(op.time_s)}, {share(op.time_s, diagnosis.accounted_s, 1)} of the step"
    parts = (op_name(op.name), plain_name(op.shapes, 120), time, si(op.flops_per_s, "FLOP/s"))
    return "\n".join(part for part in parts if part)


_STYLE = """
.gobrrr{font:14px/1.45 system-ui,sans-serif;max-width:760px;font-variant-numeric:tabular-nums}
.gobrrr .gb-stack{display:flex;border-radius:4px;overflow:hidden;margin:8px 0}
.gobrrr .gb-stack span{padding:7px 0 7px 8px;overflow:hidden;white-space:nowrap;color:#111418;
  box-sizing:border-box}
.gobrrr .compute{background:#56b4e9;fill:#0072b2;stroke:#0072b2}
.gobrrr .memory{background:#e69f00;fill:#e69f00;stroke:#a87400}
.gobrrr .overhead{background:#cc79a7;fill:#cc79a7;stroke:#a04a7b}
.gobrrr .unmodelled{background:#b9c0c7;fill:#636d77;stroke:#636d77}
.gobrrr svg{max-width:100%;height:auto}
.gobrrr svg text{font-size:11px;fill:currentColor;opacity:.8}
.gobrrr .gb-grid{stroke:currentColor;opacity:.13}
.gobrrr .gb-roof{stroke:currentColor;fill:none;stroke-width:1.4}
.gobrrr .gb-mark{fill-opacity:.5;stroke-width:1.2}
"""
