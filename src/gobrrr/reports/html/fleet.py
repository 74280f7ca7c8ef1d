"""A fleet as a page: a map of ranks by cause, step times, the culprits; markup alone, no script."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from gobrrr.fleet.verdict import FleetVerdict, RunVerdict
from gobrrr.reports import fleet as words
from gobrrr.reports.compare import leaf_label
from gobrrr.reports.html import render_page
from gobrrr.timeline.names import plain_name
from gobrrr.timeline.quantities import UNKNOWN, TimeScale, count, percent

# Pixels.
_CELL_WIDTH, _LABEL_WIDTH, _HEAD_HEIGHT = 46, 120, 74
_BAR_WIDTH, _BARS_HEIGHT = 16, 120
# Rows get a label at least this far apart.
_LABEL_EVERY = 12
_NAMES = {"compute": "compute", "memory.device": "memory traffic"}


@dataclass(frozen=True, slots=True)
class Cell:
    """A rectangle of the map or of the histogram; ``strength`` from 0 to 1."""

    x: float
    y: float
    width: float
    height: float
    strength: float
    title: str


@dataclass(frozen=True, slots=True)
class Label:
    """A text beside a drawing."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """Rectangles with labels of rows and of columns."""

    width: float
    height: float
    cells: tuple[Cell, ...]
    rows: tuple[Label, ...]
    columns: tuple[Label, ...]


@dataclass(frozen=True, slots=True)
class RunView:
    """A run, ready for the template."""

    anchor: str
    title: str
    lines: tuple[str, ...]
    headline: str
    sentence: str
    notices: tuple[str, ...]
    unit: str
    heat_of: str
    heat: Drawing | None
    steps: Drawing | None
    culprits: tuple[tuple[str, ...], ...]


def fleet_html(verdict: FleetVerdict) -> str:
    """The whole page."""
    return render_page(
        "fleet.html.j2",
        runs=[_run(run, i) for i, run in enumerate(verdict.runs)],
        errors=[plain_name(sentence) for sentence in verdict.errors],
        errors_line=words.errors_line(verdict) if verdict.errors else "",
        footer=words.footer(verdict),
    )


def _run(run: RunVerdict, number: int) -> RunView:
    scale = TimeScale.of(run.step_high_s)
    return RunView(
        anchor=f"run{number}",
        title=words.title(run),
        lines=tuple(filter(None, (words.spread_line(run), words.network_line(run)))),
        headline=words.headline(run),
        sentence=words.sentence(run),
        notices=tuple(plain_name(notice, 2000) for notice in run.notices),
        unit=scale.unit,
        heat_of=run.heat_of,
        heat=_heat(run, scale),
        steps=_histogram(run, scale),
        culprits=tuple(
            (
                str(each.ranks[0]),
                plain_name(each.host or UNKNOWN),
                scale.number(each.caused_s),
                percent(each.share),
                scale.number(each.busier_s),
                words.because(each),
            )
            for each in run.culprits
        ),
    )


def _heat(run: RunVerdict, scale: TimeScale) -> Drawing | None:
    """Each cell as strong as it is longer than the median of its column."""
    if not run.heat or not run.groups:
        return None
    height = 16 if len(run.heat) <= 40 else 6
    columns = list(zip(*(row.values_s for row in run.heat)))
    middles = [median(column) for column in columns]
    # The largest excess is as strong as it gets, unless it is below 2 % of a step.
    most = max(value - middle for column, middle in zip(columns, middles) for value in column)
    full = max(most, 0.02 * run.step_s)
    names = [_name(group) for group in run.groups]
    cells, labels = [], []
    every = max(1, round(_LABEL_EVERY / height))
    for i, row in enumerate(run.heat):
        y = _HEAD_HEIGHT + i * height
        name = f"{run.heat_of} {plain_name(row.label)}"
        if i % every == 0:
            labels.append(Label(_LABEL_WIDTH - 6, y + height / 2 + 3, name[-20:]))
        for j, value in enumerate(row.values_s):
            strength = max(0.0, (value - middles[j]) / full)
            title = f"{name}, {names[j]}: {scale.text(value)} (median {scale.text(middles[j])})"
            x = _LABEL_WIDTH + j * _CELL_WIDTH
            cells.append(Cell(x, y, _CELL_WIDTH - 1, height - 0.5, round(strength, 3), title))
    return Drawing(
        width=_LABEL_WIDTH + len(names) * _CELL_WIDTH + 60,
        height=_HEAD_HEIGHT + len(run.heat) * height + 4,
        cells=tuple(cells),
        rows=tuple(labels),
        columns=tuple(
            Label(_LABEL_WIDTH + (j + 0.5) * _CELL_WIDTH, _HEAD_HEIGHT - 6, name)
            for j, name in enumerate(names)
        ),
    )


def _name(group: str) -> str:
    return _NAMES.get(group) or leaf_label(group).rpartition(" · ")[2]


def _histogram(run: RunVerdict, scale: TimeScale) -> Drawing | None:
    most = max(run.step_times, default=0)
    if not most:
        return None
    bins = len(run.step_times)
    width_s = (run.histogram_high_s - run.histogram_low_s) / bins
    cells = []
    for i, number in enumerate(run.step_times):
        low = run.histogram_low_s + i * width_s
        height = _BARS_HEIGHT * number / most
        title = f"{count(number)} steps of {scale.number(low)} to {scale.text(low + width_s)}"
        if number:
            y = _BARS_HEIGHT - max(height, 1.0)
            cells.append(Cell(i * _BAR_WIDTH, y, _BAR_WIDTH - 1, max(height, 1.0), 1.0, title))
    ends = ((0.0, run.histogram_low_s), (float(bins * _BAR_WIDTH), run.histogram_high_s))
    return Drawing(
        width=bins * _BAR_WIDTH,
        height=_BARS_HEIGHT + 20,
        cells=tuple(cells),
        rows=(),
        columns=tuple(Label(x, _BARS_HEIGHT + 15, scale.text(at)) for x, at in ends),
    )
