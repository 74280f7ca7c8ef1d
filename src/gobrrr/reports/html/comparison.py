"""Two diagnoses side by side as a page; it needs no data for charts, only markup."""

from __future__ import annotations

from dataclasses import dataclass

from gobrrr.diagnosis.comparison import Change, Comparison
from gobrrr.reports.compare import (
    change_header,
    counted,
    counter_texts,
    delta_text,
    headline,
    in_noise,
    leaf_label,
    levels,
    moved_leaves,
    moved_ops,
    op_where,
    relative_text,
    scale_of,
)
from gobrrr.reports.html import render_page
from gobrrr.reports.html.view import regime_class
from gobrrr.reports.html.waterfall import percent_of
from gobrrr.timeline.names import op_name, plain_name
from gobrrr.timeline.quantities import TimeScale

_MOST_OPS = 400


@dataclass(frozen=True, slots=True)
class MoveView:
    """A row with a bar that goes left (saved) or right (added) of the middle.

    ``left`` and ``width`` are percent of the bar's box; ``colour`` is a class of the style sheet.
    """

    label: str
    where: str
    before: str
    after: str
    delta: str
    relative: str
    left: float
    width: float
    colour: str


@dataclass(frozen=True, slots=True)
class SideView:
    """One step as a split bar; widths are percent of the longer step."""

    label: str
    time: str
    note: str
    segments: tuple[tuple[str, float, str], ...]
    light: float | None


def comparison_html(comparison: Comparison) -> str:
    """The whole page."""
    scale = scale_of(comparison)
    leaves = moved_leaves(comparison)
    # A level moves by more than any of its leaves: one scale for both, or its bar leaves its box.
    moved = [abs((c.after or 0.0) - (c.before or 0.0)) for c in (*levels(comparison), *leaves)]
    most = max(moved, default=0.0)
    ops = moved_ops(comparison)
    most_op = max((abs(change.delta_s) for change in ops), default=0.0)
    return render_page(
        "compare.html.j2",
        headline=headline(comparison),
        verdict=comparison.verdict,
        notices=[plain_name(notice) for notice in comparison.notices],
        unit=change_header(scale),
        sides=_sides(comparison, scale),
        levels=[_leaf(c, c.name, most, scale) for c in levels(comparison)],
        leaves=[_leaf(c, leaf_label(c.name), most, scale) for c in leaves],
        ops=[
            _move(
                op_name(change.name), op_where(change), change.before_s, change.after_s, most_op,
                regime_class(change.regime_after or change.regime_before or ""), scale,
            )
            for change in ops[:_MOST_OPS]
        ],
        left_out=max(0, len(ops) - _MOST_OPS),
        in_noise=in_noise(comparison),
        counters=[
            (
                counted(c),
                *counter_texts(c),
                relative_text(c.before, c.after),
            )
            for c in sorted(comparison.counters, key=lambda c: c.before == c.after)
        ],
    )  # fmt: skip


def _leaf(change: Change, label: str, most: float, scale: TimeScale) -> MoveView:
    colour = regime_class(change.name.split(".", 1)[0])
    return _move(label, "", change.before, change.after, most, colour, scale)


def _move(
    label: str,
    where: str,
    before: float | None,
    after: float | None,
    most: float,
    colour: str,
    scale: TimeScale,
) -> MoveView:
    change = (after or 0.0) - (before or 0.0)
    width = percent_of(abs(change), 2 * most)
    return MoveView(
        label=label,
        where=where,
        before=scale.number(before),
        after=scale.number(after),
        delta=delta_text(before or 0.0, after or 0.0, scale),
        relative=relative_text(before, after),
        left=50.0 - width if change < 0 else 50.0,
        width=width,
        colour=colour,
    )


def _sides(comparison: Comparison, scale: TimeScale) -> tuple[SideView, ...]:
    longest = max(comparison.before.step_s, comparison.after.step_s)
    views = []
    for label, side in (("before", comparison.before), ("after", comparison.after)):
        time = side.time_s
        spread = f"{scale.number(time.low)} to {scale.number(time.high)}, " if time.n > 1 else ""
        steps = f"{spread}{time.n} step{'s' if time.n != 1 else ''}" if time.n else "predicted"
        names = (plain_name(side.name), plain_name(side.device), steps)
        views.append(
            SideView(
                label=label,
                time=scale.text(side.step_s),
                note=" · ".join(name for name in names if name),
                segments=tuple(
                    (level, percent_of(value, longest), scale.text(value))
                    for level in ("compute", "memory", "overhead", "unmodelled")
                    if (value := getattr(side.split, f"{level}_s")) > 0
                ),
                light=None
                if side.speed_of_light_s is None
                else percent_of(side.speed_of_light_s, longest),
            )
        )
    return tuple(views)
