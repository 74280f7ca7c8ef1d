"""Two diagnoses side by side: terminal, Markdown and JSON; the page is ``reports/html``."""

from __future__ import annotations

import io
from collections.abc import Sequence

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gobrrr.attribution.leaves import TOP_LEVELS
from gobrrr.diagnosis.comparison import FEWEST_STEPS, Change, Comparison, OpChange
from gobrrr.reports.markdown import escape
from gobrrr.reports.terminal import Options
from gobrrr.reports.words import PARTS
from gobrrr.timeline.names import op_name, plain_name, printable_json
from gobrrr.timeline.quantities import (
    UNKNOWN,
    TimeScale,
    count,
    multiple,
    percent_change,
    si,
    time_text,
)

# From here on the lesser of two times has no digit left in the unit of the other.
_FAR_APART = 1000.0
# A name in Markdown, whose tables are read as they are too.
_LONGEST = 60
_VERDICTS = {
    "faster": "faster",
    "slower": "slower",
    "same": "no difference beyond the spread of the steps",
    "unknown": "no interval is known",
}
_WORDS = {
    name: f"{level} · {part.label}{suffix}"
    for level, parts in PARTS.items()
    for part in parts
    for name, suffix in ((part.leaf, ""), (part.roof, " at the ceiling"), (part.below, " below it"))
    if name
}


def comparison_json(comparison: Comparison) -> bytes:
    """The comparison as JSON; times in seconds."""
    return printable_json(msgspec.json.encode(comparison))


class OwnUnits(TimeScale):
    """Each time in its own unit: for steps so far apart that no one unit shows both."""

    __slots__ = ()

    def number(self, seconds: float | None) -> str:
        """``"2.89 µs"``."""
        return time_text(seconds)

    def text(self, seconds: float | None) -> str:
        """``"2.89 µs"``."""
        return time_text(seconds)


def scale_of(comparison: Comparison) -> TimeScale:
    """One unit for both sides, unless one takes more than ``_FAR_APART`` times the other."""
    longest = max(comparison.before.step_s, comparison.after.step_s)
    if _far_apart(comparison.ratio):
        return OwnUnits("", 1.0, 0)
    return TimeScale.of(longest)


def change_header(scale: TimeScale) -> str:
    """What stands over the column of changes: the unit of all times, if they have one."""
    return scale.unit or "change"


def _far_apart(ratio: float | None) -> bool:
    return ratio is not None and not 1 / _FAR_APART <= ratio <= _FAR_APART


def headline(comparison: Comparison) -> str:
    """``100.0 → 80.0 ms per step: 1.25x (1.20 to 1.31), faster``."""
    scale = scale_of(comparison)
    before, after = comparison.before.step_s, comparison.after.step_s
    text = f"{scale.number(before)} → {scale.text(after)} per step"
    if comparison.ratio is None:
        return text
    interval, speedup = "", comparison.speedup
    if _far_apart(comparison.ratio):
        # Nobody reads "0.000000285x", nor seven digits where three are known.
        much, way = _thousands(comparison.ratio), "as fast"
        if comparison.ratio < 1:
            much, way = _thousands(1 / comparison.ratio), "as long"
        return f"{text}: {much}x {way}, {_verdict(comparison)}"
    if speedup is not None:
        interval = f" ({speedup.low:.2f} to {speedup.high:.2f})"
    return f"{text}: {multiple(comparison.ratio)}{interval}, {_verdict(comparison)}"


def _thousands(value: float) -> str:
    """``3512682`` -> ``3,510,000``."""
    return f"{float(f'{value:.3g}'):,.0f}"


def _verdict(comparison: Comparison) -> str:
    """A prediction has no steps whose spread could say whether a difference is one."""
    predicted = [side.time_s.n == 0 for side in (comparison.before, comparison.after)]
    if all(predicted):
        return "both predicted"
    if any(predicted):
        return f"{'before' if predicted[0] else 'after'} is predicted"
    if min(comparison.before.time_s.n, comparison.after.time_s.n) < FEWEST_STEPS:
        return "too few steps for an interval"
    return _VERDICTS[comparison.verdict]


def leaf_label(name: str) -> str:
    """``overhead.python`` -> ``overhead · python``; the fourth level is one word."""
    return "unmodelled" if name == "unmodelled" else _WORDS.get(name, name)


def moved_leaves(comparison: Comparison) -> list[Change]:
    """Leaves whose change has a digit in the unit of the steps, the largest first."""
    scale = scale_of(comparison)
    moved = [(abs((leaf.after or 0.0) - (leaf.before or 0.0)), leaf) for leaf in comparison.leaves]
    shown = [(delta_s, leaf) for delta_s, leaf in moved if _has_digit(delta_s, scale)]
    return [leaf for _, leaf in sorted(shown, key=lambda pair: -pair[0])]


def moved_ops(comparison: Comparison) -> list[OpChange]:
    """Ops that run otherwise, or whose times changed by more than noise, the largest change first.

    Those that only run more often or less are among them however little time that is.
    """
    scale = scale_of(comparison)
    return [
        op
        for op in comparison.ops
        if not op.in_noise
        and (op.count_before != op.count_after or _has_digit(abs(op.delta_s), scale))
    ]


def in_noise(comparison: Comparison) -> str:
    """What is left out as noise; empty if nothing is.

    ``122 ops that run as often as before changed within the noise of the times: not shown.``
    """
    few = sum(op.in_noise and bool(op.delta_s) for op in comparison.ops)
    if not few:
        return ""
    ops = "1 op that runs" if few == 1 else f"{count(few)} ops that run"
    return f"{ops} as often as before changed within the noise of the times: not shown."


def _has_digit(delta_s: float, scale: TimeScale) -> bool:
    return delta_s > 0 and not scale.number(delta_s).startswith("<")


def moved_counters(comparison: Comparison) -> list[Change]:
    """Counters that are not equal as they are shown, those that a gate holds first."""
    return [c for c in comparison.counters if len(set(counter_texts(c))) > 1]


def levels(comparison: Comparison) -> list[Change]:
    """The top levels; the fourth only where it is not nothing."""
    changes = [
        Change(
            name=name,
            before=getattr(comparison.before.split, f"{name}_s"),
            after=getattr(comparison.after.split, f"{name}_s"),
        )
        for name in TOP_LEVELS
    ]
    return [c for c in changes if c.name != "unmodelled" or c.before or c.after]


def delta_text(before: float | None, after: float | None, scale: TimeScale) -> str:
    """``-12.0``, ``+0.4``; a dash where a side is unknown."""
    if before is None or after is None:
        return UNKNOWN
    change = after - before
    sign = "-" if change < 0 else "+" if change > 0 else ""
    return f"{sign}{scale.number(abs(change))}"


def _relative(before: float | None, after: float | None, scale: TimeScale) -> str:
    """``relative_text``, but no multiple of a time that has no digit itself."""
    if before and after and "<" in scale.number(before) + scale.number(after):
        return ""
    return relative_text(before, after)


def relative_text(before: float | None, after: float | None) -> str:
    """``-23 %``; ``new`` and ``gone`` where one side is nothing."""
    if not before or not after:
        return "" if bool(before) == bool(after) else "gone" if before else "new"
    return percent_change(before, after)


def op_where(change: OpChange) -> str:
    """Shapes (both if they changed), module and phase."""
    shapes = [text for text in (change.shapes_before, change.shapes_after) if text]
    parts = (
        " → ".join(plain_name(text, 120) for text in dict.fromkeys(shapes)),
        plain_name(change.module or ""),
        change.phase or "",
    )
    return " · ".join(part for part in parts if part)


def counter_label(name: str) -> str:
    """A counter in words: ``host_waits_s`` -> ``host waits``; its unit stands with its value."""
    return name.removesuffix("_s").removesuffix("_bytes").replace("_", " ")


def counted(counter: Change) -> str:
    """Its name, and the lines that count towards one that grew."""
    label = counter_label(plain_name(counter.name))
    return f"{label}, {counter.where}" if counter.where else label


def counter_texts(counter: Change) -> tuple[str, str]:
    """Before and after."""
    before, after = counter.before, counter.after
    return counter_text(counter.name, before), counter_text(counter.name, after)


def counter_text(name: str, value: float | None) -> str:
    """FLOPs, bytes and seconds with their unit; everything else as a count."""
    units = {"flops": "FLOP", "bytes": "B"}
    if name.endswith("_s"):
        return time_text(value)
    if name.endswith("_bytes"):
        return si(value, "B")
    return si(value, units[name]) if name in units else count(value)


def comparison_text(comparison: Comparison, options: Options) -> str:
    """The comparison for a terminal: step, levels and leaves, ops, counters."""
    buffer = io.StringIO()
    console = Console(
        file=buffer, force_jupyter=False, width=options.width, force_terminal=options.colour,
        legacy_windows=False,
        color_system="standard" if options.colour else None, highlight=False, markup=False,
        emoji=False,
    )  # fmt: skip
    scale = scale_of(comparison)
    names = [plain_name(side.name) for side in (comparison.before, comparison.after)]
    console.print(Text(" → ".join(dict.fromkeys(names)), style="bold"))
    console.print(Text(headline(comparison), style="bold"))
    for notice in comparison.notices:
        console.print(Text(f"! {plain_name(notice)}", style="yellow"))
    times = [_row(level, level.name, scale) for level in levels(comparison)]
    counters, leaves, ops = _tables(comparison, options.top)
    _draw(console, *counters)
    _draw(console, ("", "before", "after", change_header(scale), ""), times)
    _draw(console, *leaves)
    _draw(console, *ops)
    if in_noise(comparison):
        console.print()
        console.print(Text(in_noise(comparison), style="dim"))
    text = "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"
    if options.ascii_only:
        text = text.replace("→", "->").encode("ascii", "replace").decode("ascii")
    return text


def comparison_markdown(comparison: Comparison, *, top: int = 10) -> str:
    """The comparison to be pasted: first short lines, for a chat that draws no tables; then tables.

    Names stand in code spans, so that nothing in them is markup.
    """
    scale = scale_of(comparison)
    names = [plain_name(side.name) for side in (comparison.before, comparison.after)]
    lines = [" → ".join(map(_code, dict.fromkeys(names))), "", f"**{headline(comparison)}**", ""]
    for level in levels(comparison):
        before, after = scale.number(level.before), scale.text(level.after)
        change = relative_text(level.before, level.after)
        lines.append(f"- {level.name} {before} → {after}{change and f' ({change})'}")
    lines += [f"- {escape(plain_name(notice, 2000))}" for notice in comparison.notices]
    for headers, rows in _tables(comparison, top):
        if rows:
            is_name = headers[0] == "op"
            cells = [[_code(row[0]) if is_name else row[0], *row[1:]] for row in rows]
            lines += ["", *_pipes(headers, cells)]
    if in_noise(comparison):
        lines += ["", in_noise(comparison)]
    return "\n".join(lines) + "\n"


def _code(name: str) -> str:
    """A name as a code span, which can stand in a table too."""
    short = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
    return f"`{short.replace('`', chr(39)).replace('|', '/')}`" if short else ""


def _pipes(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table of GitHub's Markdown whose columns also line up as they are."""
    # A column without a single cell says nothing.
    kept = [i for i, header in enumerate(headers) if header or any(row[i] for row in rows)]
    columns = [[headers[i], *(row[i] for row in rows)] for i in kept]
    widths = [max(3, *map(cell_len, column)) for column in columns]
    rules = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]

    def line(cells: Sequence[str]) -> str:
        pads = [" " * (width - cell_len(cell)) for cell, width in zip(cells, widths)]
        numbers = [f"{pad}{cell}" for cell, pad in zip(cells[1:], pads[1:])]
        return f"| {' | '.join([cells[0] + pads[0], *numbers])} |"

    head, *body = (line(cells) for cells in zip(*columns))
    return [head, line(rules), *body]


_Rows = list[tuple[str, ...]]


def _tables(comparison: Comparison, top: int) -> list[tuple[tuple[str, ...], _Rows]]:
    """Headers and rows of counters, parts and ops: what has moved, the most first."""
    scale = scale_of(comparison)
    leaves: _Rows = [_row(leaf, leaf_label(leaf.name), scale) for leaf in moved_leaves(comparison)]
    ops: _Rows = [
        (
            f"{op_name(change.name)} {op_where(change)}",
            scale.number(change.before_s),
            scale.number(change.after_s),
            delta_text(change.before_s or 0.0, change.after_s or 0.0, scale),
            _relative(change.before_s, change.after_s, scale),
        )
        for change in moved_ops(comparison)
    ]
    counters: _Rows = [
        (
            counted(counter),
            *counter_texts(counter),
            "",
            relative_text(counter.before, counter.after),
        )
        for counter in moved_counters(comparison)
    ]
    moved = change_header(scale)
    return [
        (("counted per step", "before", "after", "", ""), counters),
        (("part", "before", "after", moved, ""), leaves[: max(top, 12)]),
        (("op", "before", "after", moved, ""), ops[:top]),
    ]


def _row(change: Change, label: str, scale: TimeScale) -> tuple[str, ...]:
    return (
        label,
        scale.number(change.before),
        scale.number(change.after),
        delta_text(change.before, change.after, scale),
        _relative(change.before, change.after, scale),
    )


def _draw(console: Console, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if not rows:
        return
    console.print()
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    columns = list(zip(headers, *rows))
    widths = [max(cell_len(cell) for cell in column) for column in columns]
    left = console.width - sum(widths[1:]) - 2 * len(widths)
    table.add_column(headers[0], no_wrap=True, overflow="ellipsis", width=min(widths[0], left))
    for header, width in zip(headers[1:], widths[1:]):
        table.add_column(header, justify="right", no_wrap=True, width=width)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
