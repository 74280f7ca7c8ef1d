"""A fleet in a terminal: who stands out in each run, with evidence; and answers to questions."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from gobrrr.fleet.verdict import Answer, Culprit, FleetVerdict, RunVerdict
from gobrrr.jobs.diagnosis import cause_words
from gobrrr.reports.compare import leaf_label
from gobrrr.reports.tables import Column, Row, TextTable
from gobrrr.reports.terminal import Options, draw_table, drawn, hanging
from gobrrr.timeline.names import plain_name, printable_json
from gobrrr.timeline.quantities import UNKNOWN, TimeScale, count, percent, si, time_text

# Errors of files that are shown; the table ``files`` has all.
_MOST_ERRORS = 5
# A column of an answer is cut to no less than this; with more columns each row is a block.
_NARROWEST = 10
_MOST_CELL = 300
# What a spreadsheet takes for the begin of a formula.
_FORMULA = frozenset("=+-@")


def fleet_text(verdict: FleetVerdict, options: Options) -> str:
    """The whole verdict as text with a trailing newline."""

    def draw(console: Console) -> None:
        for i, run in enumerate(verdict.runs):
            if i:
                console.print()
            _draw_run(run, console, options)
        if verdict.errors:
            console.print()
            console.print(Text(errors_line(verdict), style="yellow"))
            for sentence in verdict.errors[:_MOST_ERRORS]:
                console.print(hanging("!", plain_name(sentence), "yellow"))
        console.print()
        console.print(Text(footer(verdict), style="dim"))

    return drawn(draw, options)


def _draw_run(run: RunVerdict, console: Console, options: Options) -> None:
    console.print(Text(title(run), style="bold"))
    console.print(Text(spread_line(run)))
    network = network_line(run)
    if network:
        console.print(Text(network))
    console.print()
    console.print(Text(sentence(run), style="bold"))
    for notice in run.notices:
        console.print(hanging("!", plain_name(notice, 2000), "yellow"))
    table = culprit_table(run)
    if table.rows:
        console.print()
        draw_table(table, console, options)


def title(run: RunVerdict) -> str:
    """``run 2026-11-21: 1,000 ranks on 125 hosts``."""
    of = f" of {count(run.world_size)}" if run.world_size not in (None, run.ranks) else ""
    ranks = "1 rank" if run.ranks == 1 and not of else f"{count(run.ranks)}{of} ranks"
    hosts = "hosts unknown" if run.hosts is None else f"on {count(run.hosts)} host"
    plural = "s" if run.hosts is not None and run.hosts != 1 else ""
    separator = ", " if run.hosts is None else " "
    return f"run {plain_name(run.run)}: {ranks}{separator}{hosts}{plural}"


def spread_line(run: RunVerdict) -> str:
    """Length and spread of the steps."""
    scale = TimeScale.of(run.step_high_s)
    each = "1 step" if run.steps == 1 else f"{count(run.steps)} steps"
    return (
        f"{each} of each rank, {scale.text(run.step_s)} in the median; nine in ten take "
        f"{scale.number(run.step_low_s)} to {scale.text(run.step_high_s)}"
    )


def network_line(run: RunVerdict) -> str:
    """Exposed communication; empty without any."""
    if run.network_s <= 0:
        return ""
    text = f"Exposed communication: {time_text(run.network_s)} per step"
    if run.wait_s is None or run.transfer_s is None:
        return f"{text}; how much of it is waiting is unknown"
    return f"{text}, {time_text(run.wait_s)} of it waiting for a later rank"


def who(culprit: Culprit) -> str:
    """``host node07 (ranks 56 to 63)`` or ``rank 3 on host node00``."""
    ranks = culprit.ranks
    host = plain_name(culprit.host or "")
    if not culprit.whole_host:
        return f"rank {ranks[0]}" + (f" on host {host}" if host else "")
    if ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"host {host} (ranks {ranks[0]} to {ranks[-1]})"
    return f"host {host} (ranks {', '.join(map(str, ranks))})"


def headline(run: RunVerdict) -> str:
    """The verdict in a few words."""
    if run.named is None:
        return "No rank stands out"
    return (
        f"{'The others wait for' if run.named.caused_s is not None else 'The slowest is'} "
        + who(run.named)
    )


def sentence(run: RunVerdict) -> str:
    """The verdict in a sentence or two."""
    found = run.named
    if run.ranks < 2:
        return "There is only one rank, so there is nothing to compare it with."
    if found is None:
        if run.culprits and run.culprits[0].share is not None:
            first = run.culprits[0]
            return (
                f"No rank stands out: the largest share of the waiting, {percent(first.share)}, is "
                f"for {who(first)}."
            )
        return "No rank stands out: their steps are alike."
    verb = "The other ranks wait for" if found.caused_s is not None else "The slowest is"
    text = f"{verb} {who(found)}"
    if found.caused_s is not None:
        text += f", {time_text(found.caused_s)} per step each"
        text += f" ({percent(found.share)} of all waiting)"
    if found.part is None or found.excess_s is None:
        return f"{text}. No part of its own step is longer than theirs."
    return f"{text}: it {because(found)}."


def because(culprit: Culprit) -> str:
    """What of its step is longer: ``spends 8.00 ms per step more than the others on kernels``."""
    if culprit.part is None:
        return "has no part of its own step that is longer than the others'"
    text = (
        f"spends {time_text(culprit.excess_s)} per step more than the others on "
        f"{cause_words(culprit.part)}"
    )
    if culprit.leaf is not None and culprit.leaf != culprit.part:
        text += f" ({leaf_label(culprit.leaf)})"
    if culprit.place is not None:
        text += f", most of it at {plain_name(culprit.place)}"
    return text


def culprit_table(run: RunVerdict) -> TextTable:
    """The ranks that others wait for most, with the evidence on a second line."""
    times = [c.caused_s or 0.0 for c in run.culprits] + [c.busier_s for c in run.culprits]
    scale = TimeScale.of(max(times, default=0.0))
    columns = (
        Column("rank"),
        Column("host", number=False, flexible=True),
        Column("waited for"),
        Column("of all waiting"),
        Column("extra busy"),
        Column("longer in", number=False),
    )

    def row(culprit: Culprit) -> Row:
        cells = (
            str(culprit.ranks[0]),
            plain_name(culprit.host or UNKNOWN),
            scale.number(culprit.caused_s),
            percent(culprit.share),
            scale.number(culprit.busier_s),
            UNKNOWN if culprit.part is None else cause_words(culprit.part),
        )
        return Row(cells, because(culprit) if culprit.part is not None else "")

    rows = tuple(row(culprit) for culprit in run.culprits)
    return TextTable(
        f"Ranks that others wait for, {scale.unit} per step", columns, rows, second_line=True
    )


def errors_line(verdict: FleetVerdict) -> str:
    """How many files could not be read."""
    number = len(verdict.errors)
    more = "" if number <= _MOST_ERRORS else f"; the first {_MOST_ERRORS}"
    files = "file" if number == 1 else "files"
    return f"{number} of {verdict.files} {files} could not be read{more}:"


def footer(verdict: FleetVerdict) -> str:
    """What was done for it."""
    read = "nothing was new" if not verdict.read else f"{count(verdict.read)} read"
    if verdict.cpu_s > 0:
        read += f" in {time_text(verdict.cpu_s)} of processor time"
    text = (
        f"{count(verdict.files)} files, {si(verdict.bytes, 'B')}; {read}; compared in "
        f"{time_text(verdict.merge_s)}"
    )
    if verdict.worker_bytes is not None:
        text += f"; a worker used at most {si(verdict.worker_bytes, 'B')} of memory"
    return f"{text}."


# Answers


def answer_text(answer: Answer, options: Options) -> str:
    """Rows as a plain table; each as a block of lines where the columns do not fit."""
    cells = [[_cell(value) for value in row] for row in answer.rows]
    widths = [
        max([cell_len(name), *(cell_len(row[i]) for row in cells)])
        for i, name in enumerate(answer.columns)
    ]
    left = options.width - 2 * (len(widths) - 1)
    numbers = [
        all(isinstance(row[i], (int, float, type(None))) for row in answer.rows)
        for i in range(len(widths))
    ]
    # Numbers are never cut.
    least = [w if is_number else min(w, _NARROWEST) for w, is_number in zip(widths, numbers)]
    if sum(least) > left:
        return _blocks(answer.columns, cells)
    while sum(widths) > left:
        widest = max(range(len(widths)), key=lambda i: widths[i] - least[i])
        widths[widest] -= 1
    lines = [_line(answer.columns, widths, numbers)]
    lines += [_line(row, widths, numbers) for row in cells]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str], widths: Sequence[int], numbers: Sequence[bool]) -> str:
    placed = []
    for cell, width, is_number in zip(cells, widths, numbers):
        text = Text(cell)
        text.truncate(width, overflow="ellipsis")
        text.align("right" if is_number else "left", width)
        placed.append(text.plain)
    return "  ".join(placed).rstrip()


def _blocks(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    width = max(map(cell_len, columns), default=0)
    blocks = [
        "\n".join(f"{name:<{width}}  {cell}".rstrip() for name, cell in zip(columns, row))
        for row in rows
    ]
    return "\n\n".join(blocks) + "\n"


def _cell(value: Any) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, float):
        return f"{value:.6g}"
    return plain_name(str(value), _MOST_CELL)


def answer_json(answer: Answer) -> str:
    """A list of objects, one for each row."""
    columns = _distinct(answer.columns)
    rows = [dict(zip(columns, row)) for row in answer.rows]
    return printable_json(msgspec.json.encode(rows, enc_hook=str)).decode() + "\n"


def _distinct(columns: Sequence[str]) -> list[str]:
    """The names of columns, numbered where one stands twice: an object has each once."""
    found: list[str] = []
    for name in columns:
        number, own = 1, name
        while own in found:
            number += 1
            own = f"{name}_{number}"
        found.append(own)
    return found


def answer_csv(answer: Answer) -> str:
    """A header and the rows; what is unknown is empty.

    A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(map(_text_cell, answer.columns))
    writer.writerows(map(_text_cell, row) for row in answer.rows)
    return buffer.getvalue()


def _text_cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = plain_name(value, len(value))
    return f"'{text}" if text.lstrip()[:1] in _FORMULA else text
