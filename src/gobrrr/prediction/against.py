"""Predictions held against times that a user measured: the file, and how far off they are.

The file is CSV with a header: ``op`` (as ``gobrrr predict --op`` takes it) or ``program``
(``FILE.py:FUNCTION``), one column of time, ``s``, ``ms`` or ``us``, and, if it is not one device's,
``device``. An op's time is that of its kernels, as events around many calls give it; a program's is
its seconds per step.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite, log
from pathlib import Path
from typing import Any

import numpy as np

from gobrrr.diagnosis.record import Record
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.timeline.errors import InputError

_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_WHAT = ("op", "program")
EXAMPLE = 'op,ms and under it "mm(4096x4096, 4096x4096, bf16)",0.21'


@dataclass(frozen=True, slots=True)
class Measured:
    """One row of a user's file.

    Attributes:
        line: in the file, from 1.
        op, program: what was timed; one of them is ``""``.
        device: as the row names it; ``""``: the one that the command was given.
        seconds: what was measured.
    """

    line: int
    op: str
    program: str
    device: str
    seconds: float


class AgainstRow(Record, kw_only=True):
    """A measured time beside its prediction, in seconds.

    ``within``: whether the measured time lies in the stated interval (``low_s`` to ``high_s``);
    ``None`` without one. ``because``: the arithmetic of its longest op.
    """

    line: int
    what: str
    kind: str
    device: str
    measured_s: float
    predicted_s: float
    low_s: float | None
    high_s: float | None
    within: bool | None
    regime: str | None
    because: str

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_s / self.measured_s - 1


class AgainstScore(Record, kw_only=True):
    """Errors of the rows of one kind on one device, of |predicted / measured - 1|.

    ``bias``: the median with its sign, below 0: told too fast. ``within``: share of measured times
    in their intervals, ``None`` where no row has one.
    """

    device: str
    kind: str
    rows: int
    median_error: float
    p90_error: float
    bias: float
    within: float | None


class Against(Record, kw_only=True):
    """All rows of a file, scored. ``refused``: rows that cannot run there, and why."""

    rows: list[AgainstRow]
    scores: list[AgainstScore]
    refused: list[str]


def read_measured(path: Path) -> list[Measured]:
    """The rows of the file.

    Raises InputError, naming the line, for a file that cannot be read as such.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream, skipinitialspace=True, strict=True)
            unit = _unit_of(reader.fieldnames, path)
            rows = [_row(record, reader.line_num, unit, path) for record in reader]
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error.reason}") from error
    except csv.Error as error:
        raise InputError(f"{path} is not a CSV file: {error}") from error
    if not rows:
        raise InputError(f"{path} has no rows below its header")
    return rows


def _unit_of(header: Sequence[str] | None, path: Path) -> str:
    names = [(name or "").strip() for name in header or ()]
    if not any(name in _WHAT for name in names):
        raise InputError(f"{path} has no column named op or program: a header is {EXAMPLE}")
    units = [name for name in names if name in _UNITS]
    if len(units) != 1:
        raise InputError(
            f"{path} needs exactly one column of measured times, named s, ms or us: it has "
            f"{' and '.join(units) or 'none'}"
        )
    unknown = [name for name in names if name not in (*_WHAT, *_UNITS, "device")]
    if unknown:
        raise InputError(
            f"{path} has a column {unknown[0]!r}: columns are op, program, device, and s, ms or us"
        )
    return units[0]


def _row(record: dict[Any, Any], line: int, unit: str, path: Path) -> Measured:
    where = f"{path}, line {line}"
    if None in record:
        raise InputError(f"{where}: more cells than columns; quote an op that has commas")
    cells = {(name or "").strip(): (value or "").strip() for name, value in record.items()}
    op, program = cells.get("op", ""), cells.get("program", "")
    if bool(op) == bool(program):
        raise InputError(f"{where}: {'an op and a program' if op else 'neither op nor program'}")
    text = cells.get(unit, "")
    try:
        seconds = float(text) * _UNITS[unit]
    except ValueError:
        raise InputError(f"{where}: {text!r} is not a number ({unit})") from None
    if not isfinite(seconds) or seconds <= 0:
        raise InputError(f"{where}: a time of {text} {unit}; it has to be above 0 and finite")
    return Measured(line, op, program, cells.get("device", ""), seconds)


def scored_row(row: Measured, found: Diagnosis) -> AgainstRow:
    """The row beside its prediction."""
    predicted_s = found.accounted_s
    if row.op and found.device_time is not None:
        predicted_s = found.device_time.compute_kernels_s
    interval = found.source.get("interval")
    low_s: float | None = None
    high_s: float | None = None
    within: bool | None = None
    time = found.step.time_s
    if row.program:
        # Of a step that its host decides, also where no kernel was measured.
        if time.high is not None and time.low < time.high:
            low_s, high_s = time.low, time.high
    elif interval is not None:
        low_s, high_s = (predicted_s * float(end) for end in interval)
    if low_s is not None and high_s is not None:
        within = low_s <= row.seconds <= high_s
    explained = found.source.get("explained") or [""]
    return AgainstRow(
        line=row.line,
        what=row.op or row.program,
        kind="op" if row.op else "program",
        device=str(found.source.get("device")),
        measured_s=row.seconds,
        predicted_s=predicted_s,
        low_s=low_s,
        high_s=high_s,
        within=within,
        regime=found.regime,
        because=str(explained[0]),
    )


def scored(rows: Iterable[AgainstRow], refused: Sequence[str] = ()) -> Against:
    """All rows, the worst first, and their errors by device and kind."""
    ordered = sorted(rows, key=lambda row: -abs(log(row.predicted_s / row.measured_s)))
    groups: dict[tuple[str, str], list[AgainstRow]] = defaultdict(list)
    for row in ordered:
        groups[row.device, row.kind].append(row)
    scores = []
    for (device, kind), members in sorted(groups.items()):
        errors = np.array([row.error for row in members])
        known = [row.within for row in members if row.within is not None]
        scores.append(
            AgainstScore(
                device=device,
                kind=kind,
                rows=len(members),
                median_error=float(np.median(np.abs(errors))),
                p90_error=float(np.percentile(np.abs(errors), 90)),
                bias=float(np.median(errors)),
                within=sum(known) / len(known) if known else None,
            )
        )
    return Against(rows=ordered, scores=scores, refused=list(refused))
