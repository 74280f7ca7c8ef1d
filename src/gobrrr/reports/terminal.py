"""The report in a terminal, one screen: verdict, split, what to do, and the next command.

Tables stand in it where they are asked for; with ``verbose`` all findings, what was ruled out and
how the numbers were got.

Width 80 unless the terminal says otherwise; no colour in a pipe; ASCII where the encoding has no
block characters.
"""

from __future__ import annotations

import io
import os
import shutil
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gobrrr.diagnosis.advice import advice_of
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.reports import advice_lines, sentences
from gobrrr.reports.fix_table import finding_groups, fix_table, ruled_out_lines, summary_lines
from gobrrr.reports.memory_table import memory_lines, memory_table
from gobrrr.reports.next_command import next_command
from gobrrr.reports.rank_tables import job_line, rank_tables
from gobrrr.reports.tables import TextTable, tables_named, time_scale
from gobrrr.timeline.names import plain_name
from gobrrr.timeline.quantities import share

# Below 80 the columns of numbers alone would not fit; such a terminal wraps.
MIN_WIDTH, DEFAULT_WIDTH, MAX_WIDTH = 80, 80, 200
DEFAULT_TOP = 8
# Pieces of advice, and lines of the reason of each, unless all is asked for.
ADVICE, REASON_LINES = 3, 2
# A part of the step below this share is told only with ``verbose``.
_LEAST_PART = 0.01
# Below this share of kernel time with a formula and a ceiling the reader is told of it.
_MODELLED = 0.9

# Distinguishable with the common colour deficiencies, and on dark and light grounds.
_COLOURS = {
    "compute": "green", "memory": "blue", "overhead": "yellow", "unmodelled": "magenta",
}  # fmt: skip
_INDENT = (0, 0, 0, 4)
_AT_ROOF, _BELOW = "█", "▒"
# One character for one, so that columns keep their places.
_ASCII = str.maketrans(
    {"█": "#", "▒": "=", "·": "-", "…": "~", "µ": "u", "→": ">", "×": "x", "–": "-", "─": "-"}
)


@dataclass(frozen=True, slots=True)
class Options:
    """What to show: rows per table, which tables (names of ``reports.TABLES``), and how.

    ``verbose``: all that is known. ``saved``: files that hold the diagnosis, of which ``saved_as``
    can be read again. ``next``: whether the last line is the next command.
    """

    top: int = DEFAULT_TOP
    by: Sequence[str] = ()
    width: int = DEFAULT_WIDTH
    colour: bool = False
    ascii_only: bool = False
    verbose: bool = False
    saved: Sequence[str] = ()
    saved_as: str = ""
    next: bool = True


def options_for(stream: TextIO, *, top: int | None = None, by: Sequence[str] = ()) -> Options:
    """Options that suit ``stream``: its width, colour only in a terminal, ASCII if it must be.

    ``NO_COLOR`` (https://no-color.org) and ``TERM=dumb`` switch colour off; ``COLUMNS`` sets the
    width.
    """
    terminal = stream.isatty()
    width = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns if terminal else DEFAULT_WIDTH
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        width = int(columns)
    try:
        (_AT_ROOF + _BELOW + "·…µ").encode(stream.encoding or "ascii")
        ascii_only = False
    except (UnicodeEncodeError, LookupError):
        ascii_only = True
    colour = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Options(
        DEFAULT_TOP if top is None else top,
        tuple(by),
        min(max(width, MIN_WIDTH), MAX_WIDTH),
        colour,
        ascii_only,
    )


def print_report(diagnosis: Diagnosis, stream: TextIO, options: Options | None = None) -> None:
    """Writes the report to ``stream`` as it suits that stream."""
    stream.write(report_text(diagnosis, options or options_for(stream)))


def report_text(diagnosis: Diagnosis, options: Options = Options()) -> str:
    """The whole report as text with a trailing newline."""
    return drawn(lambda console: _draw(diagnosis, options, console), options)


def gist_text(diagnosis: Diagnosis, options: Options = Options()) -> str:
    """What was diagnosed, its step and the verdict; the whole report stands further up."""

    def draw(console: Console) -> None:
        console.print(Text(sentences.title(diagnosis), style="bold"))
        console.print(Text(sentences.step_time(diagnosis)))
        first = (sentences.what_a_step_is, sentences.wall_time)
        _print_lines(console, [sentence(diagnosis) for sentence in first])
        if diagnosis.verdict:
            console.print(_verdict(diagnosis))
        if why := sentences.no_verdict(diagnosis):
            console.print(hanging("!", why, "yellow"))
        console.print(Text("The report is above, where the program was diagnosed."))
        _draw_next(diagnosis, console, options)

    return drawn(draw, options)


def drawn(draw: Callable[[Console], None], options: Options) -> str:
    """What ``draw`` prints, as text that suits the options."""
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        # In a notebook rich would give each line an output of its own and leave the file empty.
        force_jupyter=False,
        width=options.width,
        force_terminal=options.colour,
        color_system="standard" if options.colour else None,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    draw(console)
    lines = (line.rstrip() for line in buffer.getvalue().splitlines())
    text = "\n".join(lines) + "\n"
    if options.ascii_only:
        text = text.translate(_ASCII).encode("ascii", "replace").decode("ascii")
    return text


def _draw(diagnosis: Diagnosis, options: Options, console: Console) -> None:
    console.print(Text(sentences.title(diagnosis), style="bold"))
    console.print(Text(sentences.step_time(diagnosis)))
    beside = (
        sentences.what_a_step_is, sentences.seen_steps, sentences.wall_time, sentences.slow_steps,
    )  # fmt: skip
    _print_lines(console, [sentence(diagnosis) for sentence in beside])
    if diagnosis.verdict:
        console.print()
        console.print(_verdict(diagnosis))
    for notice in diagnosis.notices:
        console.print(hanging("!", plain_name(notice, 2000), "yellow"))
    console.print()
    _draw_split(diagnosis, console, options)
    below = (
        sentences.speed_of_light, sentences.device_time, sentences.energy, sentences.least_certain,
    )  # fmt: skip
    _print_lines(console, [sentence(diagnosis) for sentence in below])
    batch = sentences.batch_note(diagnosis)
    _print_lines(console, [f"Batch test: {batch}" if batch else ""])
    for table in tables_named(options.by, diagnosis, options.top):
        console.print()
        draw_table(table, console, options)
    _draw_ranks(diagnosis, console, options)
    if diagnosis.fixes is not None:
        _draw_fixes(diagnosis, diagnosis.fixes.snippet, console, options)
    _draw_advice(diagnosis, console, options)
    if options.verbose:
        _draw_findings(diagnosis, console, options)
    modelled = diagnosis.coverage.modelled_time_fraction
    covered = sentences.coverage(diagnosis)
    in_doubt = modelled is not None and modelled < _MODELLED
    footer = [*(covered if options.verbose else covered[:1] if in_doubt else ())]
    footer.append(job_line(diagnosis))
    if options.verbose:
        footer += [sentences.measuring(diagnosis), sentences.card(diagnosis)]
    if any(footer):
        console.print()
        _print_lines(console, footer, style="dim")
    console.print()
    if options.saved:
        # Whole, so that it can be copied.
        console.print(Text(f"Saved: {', '.join(options.saved)}"), soft_wrap=True)
    if options.next:
        _draw_next(diagnosis, console, options)


def _draw_next(diagnosis: Diagnosis, console: Console, options: Options) -> None:
    """The next command as the last line: whole, so that it can be copied."""
    found = next_command(diagnosis, options.saved_as, bool(options.by))
    if not found.command:
        return
    command = plain_name(found.command, 4000)
    line = Text("Next: ")
    line.append(command, style="bold")
    line.append(f"   {found.does}" if found.does else "", style="dim")
    if line.cell_len > console.width and found.does:
        console.print(Text(f"Next ({found.does}):"))
        line = Text(f"  {command}", style="bold")
    console.print(line, soft_wrap=True)


def _draw_advice(diagnosis: Diagnosis, console: Console, options: Options) -> None:
    listed = advice_of(diagnosis)
    shown = listed if options.verbose else listed[:ADVICE]
    if not shown:
        if nothing := advice_lines.nothing_to_do(diagnosis):
            console.print()
            console.print(Text(nothing))
        return
    console.print()
    console.print(Text(advice_lines.heading(diagnosis), style="bold"))
    for number, advised in enumerate(shown, 1):
        title, saving = advice_lines.title_of(advised), advice_lines.saving_of(advised, diagnosis)
        _draw_title(f"  {number} {title}", saving, console)
        reason = advice_lines.reason_of(advised)
        for line in _filled(reason, console.width - 4, options):
            console.print(Padding(Text(line, style="dim"), _INDENT))
        for line in advice_lines.change_lines(advised, console.width - 4):
            console.print(Text(f"    {line}"), soft_wrap=True)
        if trial := advice_lines.trial_of(advised, diagnosis):
            # Whole, so that it can be copied.
            console.print(Text(f"    {trial}"), soft_wrap=True)
        if options.verbose and (words := advice_lines.words_of(advised)):
            console.print(Padding(Text(words, style="dim"), _INDENT))
    if len(listed) > len(shown):
        more = f"  … {len(listed) - len(shown)} more: --verbose"
        console.print(Text(more, style="dim"))


def _filled(text: str, width: int, options: Options) -> list[str]:
    """The text in lines; no more than a few of them unless all is asked for."""
    lines = None if options.verbose else REASON_LINES
    return textwrap.wrap(
        text, width, max_lines=lines, placeholder=" …", break_on_hyphens=False,
    ) if text else []  # fmt: skip


def _draw_title(name: str, figure: str, console: Console) -> None:
    """What one finding is, in bold, and its figure at the right, beneath where both do not fit."""
    title = Text(name, style="bold")
    room = console.width - title.cell_len - cell_len(figure)
    if room >= 2:
        title.append(" " * room + figure)
        console.print(title, no_wrap=True, overflow="crop")
        return
    indent = " " * (4 if figure else 0)
    for i, line in enumerate(textwrap.wrap(name.strip(), console.width - 4)):
        console.print(Text(("  " if i == 0 else "    ") + line, style="bold"))
    if figure:
        console.print(Text(f"{indent}{figure}", style="bold"))


def _print_lines(console: Console, lines: Sequence[str], style: str = "") -> None:
    for line in lines:
        if line:
            console.print(Text(line, style=style))


def _verdict(diagnosis: Diagnosis) -> Text:
    """The verdict, its first sentence in bold."""
    text = Text(plain_name(diagnosis.verdict, 4000))
    first = text.plain.find(". ")
    colour = _COLOURS.get(diagnosis.regime or "", "")
    text.stylize(f"bold {colour}", 0, first + 1 if first > 0 else None)
    return text


def hanging(mark: str, text: str, style: str = "", indent: int = 0) -> Padding:
    """A line behind a mark; what wraps is indented under the text."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=len(mark), no_wrap=True)
    grid.add_column()
    grid.add_row(Text(mark, style=style), Text(text, style=style))
    return Padding(grid, (0, 0, 0, indent))


def _draw_split(diagnosis: Diagnosis, console: Console, options: Options) -> None:
    scale, step_s = time_scale(diagnosis), diagnosis.accounted_s
    levels = sentences.split_levels(diagnosis)
    times = [scale.number(t) for level in levels for t in (level.time_s, *_parts_s(level))]
    number = max(len(time) for time in times)
    label = 15
    lead = 2 + label + number + 1 + len(scale.unit) + 2 + 7 + 2
    full = console.width - lead
    for level in levels:
        colour = _COLOURS[level.name]
        line = Text("  ")
        line.append(f"{level.name:<{label}}", style=f"bold {colour}")
        line.append(f"{scale.number(level.time_s):>{number}} {scale.unit}  ", style="bold")
        line.append(f"{share(level.time_s, step_s, 1):>7}  ")
        bar = _bar(level, step_s, full)
        line.append_text(bar)
        line.append(f"{' ' if bar else ''}{level.note}", style="dim")
        console.print(line, no_wrap=True, overflow="crop")
        if level.name == "unmodelled":
            continue
        for part in level.parts:
            if part.time_s < _LEAST_PART * step_s and not options.verbose:
                continue
            line = Text("    ", style="dim")
            line.append(f"{part.label:<{label - 2}}")
            line.append(f"{scale.number(part.time_s):>{number}} {scale.unit}  ")
            line.append(f"{share(part.time_s, step_s, 1):>7}  ")
            line.append(part.note)
            console.print(line, no_wrap=True, overflow="ellipsis")
    if any(level.roof_s for level in levels):
        legend = f"  {_AT_ROOF} at a ceiling of the device   {_BELOW} everything else"
        console.print(Text(legend, style="dim"))


def _parts_s(level: sentences.SplitLevel) -> list[float]:
    return [part.time_s for part in level.parts]


def _bar(level: sentences.SplitLevel, step_s: float, full: int) -> Text:
    """A bar whose full width is the step; solid is work at a ceiling."""
    if not step_s:
        return Text()
    end = round(full * level.time_s / step_s)
    solid = round(full * level.roof_s / step_s)
    if level.time_s > 0:
        end = max(end, 1)
    return Text(_AT_ROOF * min(solid, end) + _BELOW * (end - solid), style=_COLOURS[level.name])


def draw_table(table: TextTable, console: Console, options: Options) -> None:
    """A table within the console's width: the flexible column is cut."""
    console.print(Text(table.title, style="bold"))
    widths = [
        max(len(column.header), *(cell_len(row.cells[i]) for row in table.rows))
        for i, column in enumerate(table.columns)
    ]
    flexible = next(i for i, column in enumerate(table.columns) if column.flexible)
    others = sum(width for i, width in enumerate(widths) if i != flexible)
    gaps = 2 * (len(widths) - 1)
    widths[flexible] = max(8, min(widths[flexible], console.width - 2 - others - gaps))
    headers = [column.header for column in table.columns]
    console.print(
        _cells(table, headers, widths, [""] * len(headers), "dim"), no_wrap=True, overflow="crop"
    )
    for row in table.rows:
        styles = [
            _COLOURS.get(row.regime, "") if column.header == "bound by" else ""
            for column in table.columns
        ]
        console.print(
            _cells(table, row.cells, widths, styles, ""), no_wrap=True, overflow="ellipsis"
        )
        name = row.cells[flexible]
        cut = name if table.second_line and cell_len(name) > widths[flexible] else ""
        second = " · ".join(part for part in (cut, row.detail) if part)
        if second:
            detail = Text(f"    {second}", style="dim")
            console.print(detail, no_wrap=True, overflow="ellipsis")
    if table.left_out:
        more = len(table.rows) + table.left_out
        console.print(Text(f"  … {table.left_out} more: --top {more}", style="dim"))


def _cells(
    table: TextTable, cells: Sequence[str], widths: list[int], styles: list[str], base: str
) -> Text:
    line = Text("  ", style=base)
    for i, (column, cell) in enumerate(zip(table.columns, cells)):
        text = Text(_last_cells(cell, widths[i]) if column.path else cell, style=styles[i])
        text.truncate(widths[i], overflow="ellipsis")
        text.align("right" if column.number else "left", widths[i])
        line.append_text(text)
        if i + 1 < len(widths):
            line.append("  ")
    return line


def _last_cells(text: str, width: int) -> str:
    """The end of ``text`` that fits into ``width`` columns, after an ellipsis if it was cut."""
    if cell_len(text) <= width:
        return text
    while cell_len(text) >= width:
        text = text[1:]
    return f"…{text}"


def _draw_ranks(diagnosis: Diagnosis, console: Console, options: Options) -> None:
    for table in rank_tables(diagnosis, options.top):
        if table.rows:
            console.print()
            draw_table(table, console, options)


def _draw_findings(diagnosis: Diagnosis, console: Console, options: Options) -> None:
    """All findings that are not advised, with their savings of the step."""
    number = 0
    advised = [advised.finding for advised in advice_of(diagnosis)]
    for heading, found in finding_groups(diagnosis):
        findings = [finding for finding in found if finding not in advised]
        if not findings:
            continue
        console.print()
        console.print(Text(heading, style="bold"))
        for finding in findings:
            number += 1
            name, saving, lines = sentences.finding_lines(finding, diagnosis)
            _draw_title(f"  {number} {name}", saving, console)
            for line in lines:
                console.print(Padding(Text(line, style="dim"), _INDENT))


def _draw_fixes(diagnosis: Diagnosis, snippet: str, console: Console, options: Options) -> None:
    for table in (fix_table(diagnosis), memory_table(diagnosis)):
        if table.rows:
            console.print()
            draw_table(table, console, options)
    ruled_out = ruled_out_lines(diagnosis)
    if ruled_out and options.verbose:
        console.print()
        console.print(Text("Ruled out", style="bold"))
        for line in ruled_out:
            console.print(hanging("-", line, "dim", indent=2))
    console.print()
    lines = summary_lines(diagnosis)
    console.print(Text(lines[0], style="bold"))
    _print_lines(console, [*lines[1:], *memory_lines(diagnosis)])
    if snippet:
        console.print()
        for line in snippet.splitlines():
            console.print(Padding(Text(line), (0, 0, 0, 4)))
