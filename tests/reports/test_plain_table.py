"""Tables as plain lines: columns in place, numbers flush right, nothing cut."""

from __future__ import annotations

from gobrrr.devices.ceilings import Ceiling
from gobrrr.reports.plain_table import ceiling_lines, plain_lines
from gobrrr.reports.tables import Column, Row, TextTable


def test_columns_keep_their_places() -> None:
    columns = (Column("device", number=False), Column("step"), Column("bound by", number=False))
    rows = (Row(("H100", "1.2 ms", "memory")), Row(("日本", "10 ms", "")))
    assert plain_lines(TextTable("", columns, rows), indent="  ") == [
        "  device    step  bound by",
        "  H100    1.2 ms  memory",
        # Wide characters take two columns each.
        "  日本     10 ms",
    ]


def test_without_headers_there_is_no_line_for_them() -> None:
    rows = [Ceiling("memory.dram.read", 2e12, "B/s", "datasheet", "a paper")]
    assert ceiling_lines(rows, lambda row: row.source) == [
        "  memory.dram.read       2.00 TB/s  a paper"
    ]
    assert ceiling_lines([], lambda row: row.source) == []


def test_what_does_not_fit_beside_a_ceiling_stands_beneath_it() -> None:
    rows = [
        Ceiling("l1", 1e12, "B/s", "measured", "a loop"),
        Ceiling("l2", 2e12, "B/s", "measured", "a much longer account of it"),
    ]
    assert ceiling_lines(rows, lambda row: row.source, width=30) == [
        "  l1       1.00 TB/s  a loop",
        "  l2       2.00 TB/s",
        "    a much longer account of",
        "    it",
    ]
