"""A table as lines of plain text, for what is not a report of one diagnosis; nothing is cut."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable

from rich.cells import cell_len

from gobrrr.devices.ceilings import Ceiling
from gobrrr.reports.tables import Column, Row, TextTable
from gobrrr.timeline.quantities import quantity


def plain_lines(table: TextTable, *, indent: str = "") -> list[str]:
    """The headers, if there is one, and the rows: columns two spaces apart, numbers flush right.

    Title, details and ``left_out`` are the caller's to say.
    """
    headers = tuple(column.header for column in table.columns)
    lines = [row.cells for row in table.rows]
    if any(headers):
        lines.insert(0, headers)
    widths = [max(map(cell_len, cells), default=0) for cells in zip(*lines)]

    def placed(cell: str, width: int, number: bool) -> str:
        gap = " " * (width - cell_len(cell))
        return gap + cell if number else cell + gap

    return [
        (
            indent
            + "  ".join(
                placed(cell, width, column.number)
                for cell, width, column in zip(cells, widths, table.columns)
            )
        ).rstrip()
        for cells in lines
    ]


def ceiling_lines(
    rows: Iterable[Ceiling], said: Callable[[Ceiling], str], *, width: int | None = None
) -> list[str]:
    """A line for each ceiling: its name, its value, and what is said of where it comes from.

    Args:
        rows: the ceilings.
        said: what is said of one.
        width: of the terminal in columns; what is said of a ceiling whose line would be longer
            stands beneath it. ``None``: nothing is moved.
    """
    columns = (Column("", number=False), Column(""), Column("", number=False))
    # At least as wide as most values are, so that tables of two machines stand alike.
    cells = [Row((row.name, f"{quantity(row.value, row.unit):>14}", said(row))) for row in rows]
    lines = plain_lines(TextTable("", columns, tuple(cells)), indent="  ")
    if width is None or max(map(cell_len, lines), default=0) <= width:
        return lines
    short = plain_lines(
        TextTable("", columns, tuple(Row((*row.cells[:2], "")) for row in cells)), indent="  "
    )
    found = []
    for line, figure, row in zip(lines, short, cells):
        if cell_len(line) <= width:
            found.append(line)
        else:
            found.append(figure)
            found += textwrap.wrap(
                row.cells[2], width, initial_indent="    ", subsequent_indent="    "
            )
    return found
