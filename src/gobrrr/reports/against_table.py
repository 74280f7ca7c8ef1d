"""Predictions beside measured times, for a terminal: the errors, and the worst rows explained."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from gobrrr.prediction.against import Against, AgainstRow
from gobrrr.reports.plain_table import plain_lines
from gobrrr.reports.tables import Column, Row, TextTable
from gobrrr.timeline.names import plain_name
from gobrrr.timeline.quantities import percent, time_text

# Rows that are explained, the worst first; and what is near enough to need no explanation.
_EXPLAINED, _NEAR = 3, 0.05
_LONGEST = 60


def against_text(found: Against, width: int = 80) -> str:
    """Errors by device and kind, every row, and where the worst come from."""
    lines = plain_lines(_scores(found))
    lines.append(
        "error: |predicted / measured - 1|; bias: median of the signed error, negative where the "
        "prediction is too fast; in interval: share of measured times inside the 80 % interval."
    )
    if found.rows:
        lines += ["", *plain_lines(_rows(found.rows))]
    lines += found.refused
    worst = [row for row in found.rows if abs(row.error) > _NEAR][:_EXPLAINED]
    if worst:
        lines += ["", "Largest errors"]
        lines += [f"{_what(row)} on {row.device}, {_by(row)}. {row.because}" for row in worst]
    return "".join(_filled(line, width) + "\n" for line in lines)


def _scores(found: Against) -> TextTable:
    headers = ("device", "what", "rows", "median error", "90th percentile", "bias", "in interval")
    rows = [
        Row(
            (
                score.device,
                f"{score.kind}s",
                str(score.rows),
                percent(score.median_error, 1),
                percent(score.p90_error, 1),
                _signed(score.bias),
                percent(score.within),
            )
        )
        for score in found.scores
    ]
    return TextTable("", tuple(Column(h, number=i > 1) for i, h in enumerate(headers)), tuple(rows))


def _rows(rows: Sequence[AgainstRow]) -> TextTable:
    headers = ("measured", "predicted", "error", "device", "line", "what")
    cells = [
        Row(
            (
                time_text(row.measured_s),
                time_text(row.predicted_s),
                _signed(row.error),
                row.device,
                str(row.line),
                _what(row),
            )
        )
        for row in rows
    ]
    columns = tuple(Column(h, number=h not in ("device", "what")) for h in headers)
    return TextTable("", columns, tuple(cells))


def _what(row: AgainstRow) -> str:
    return plain_name(row.what, _LONGEST)


def _by(row: AgainstRow) -> str:
    return f"{time_text(row.predicted_s)} predicted and {time_text(row.measured_s)} measured"


def _signed(error: float) -> str:
    return f"{'-' if error < 0 else '+'}{percent(abs(error), 1)}"


def _filled(line: str, width: int) -> str:
    """A sentence wrapped; the rows of a table stay whole."""
    if "  " in line.strip():
        return line
    return textwrap.fill(line, width, subsequent_indent="  ", break_on_hyphens=False)
