"""One step, or one op, on several devices: a table for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.prediction.step.memory import what_fits
from gobrrr.reports.plain_table import plain_lines
from gobrrr.reports.tables import Column, Row, TextTable
from gobrrr.timeline.names import plain_name
from gobrrr.timeline.quantities import (
    UNKNOWN,
    TimeScale,
    multiple,
    percent,
    share,
    si,
    significant,
    time_text,
)

# Stands for the device in a sentence that holds for several.
_BLANK = "\0"
_RIDGE = "ridge: FLOPs per byte above which 16-bit products are compute-bound."


@dataclass(frozen=True, slots=True)
class _Column:
    """``spare``: left out where the table is too wide, the largest first; 0 is never left out."""

    header: str
    cells: tuple[str, ...]
    spare: int = 0


def prediction_table(
    diagnoses: Sequence[Diagnosis], width: int = 80, refused: Sequence[tuple[str, str]] = ()
) -> str:
    """A row for each device: step and its interval, split, regime, memory, light, ridge point.

    A device with too little memory for the step, or without a path for one of its dtypes, has a
    sentence in place of a row: it would not run there.

    Args:
        diagnoses: of the same step on several devices.
        width: columns of the terminal.
        refused: devices that cannot run the step, each with the reason.
    """
    fitting = [found for found in diagnoses if not _exceeds_memory(found)]

    first_s = fitting[0].accounted_s if fitting else 0.0

    def column(header: str, cell: Callable[[Diagnosis], str], spare: int = 0) -> _Column:
        return _Column(header, tuple(cell(found) for found in fitting), spare)

    columns = [
        column("device", _device),
        column("step", _step),
        column("interval", _interval),
        column("time", lambda d: multiple(d.accounted_s / first_s if first_s else None)),
        column("compute", lambda d: share(d.split.compute_s, d.accounted_s), 1),
        column("memory", lambda d: share(d.split.memory_s, d.accounted_s), 1),
        column("overhead", lambda d: share(d.split.overhead_s, d.accounted_s), 1),
        column("bound by", lambda d: (d.regime or UNKNOWN) + ("~" if d.close else "")),
        column("needs", _memory, 3),
        column("SOL", lambda d: time_text(d.speed_of_light_s), 4),
        column("ridge", lambda d: significant(_ridge(d)), 5),
    ]
    # A trace says nothing of the memory.
    columns = [
        c for c in columns if c.header not in ("needs", "interval") or set(c.cells) != {UNKNOWN}
    ]
    shown, left_out = _fitted(columns, width)
    notes = [*_too_small(diagnoses), *_cannot_run(refused), *_assumed(fitting)]
    if fitting:
        interval = "; interval: of the step, where measured times are to be expected"
        given = any(column.header == "interval" for column in columns)
        notes.append(f"time: times that of {_device(fitting[0])}{interval * given}.")
    notes += _whose_overhead(fitting)
    if any(column.header == "SOL" for column in shown) and fitting:
        notes.append("SOL: speed of light, the time of this work at the device's ceilings.")
    if any(column.header == "ridge" for column in shown) and fitting:
        notes.append(_RIDGE)
    if any(cell.startswith(">") for cell in columns[1].cells):
        notes.append(">: probably host-bound there, and then longer than shown.")
    if any(found.close for found in fitting):
        notes.append("~: close call with another level.")
    if any(found.split.unmodelled_s for found in fitting):
        notes.append("Part of the time is unmodelled: see the report of one device.")
    return _text(shown if fitting else [], [*notes, *left_out], width)


def _whose_overhead(fitting: Sequence[Diagnosis]) -> list[str]:
    """Whose time the overhead of a predicted step is; nothing where it is the device's own."""
    if not any(d.device.kind != "cpu" and d.split.overhead_s for d in fitting):
        return []
    if any(d.source.get("from") == "trace" for d in fitting):
        return ["overhead: of the host that the trace was recorded on, and of the device."]
    return [
        "overhead: of an assumed host beside the device, not of this machine's processor; "
        "--host-overhead says how many times that your program takes."
    ]


def op_table(diagnoses: Sequence[Diagnosis], width: int = 80) -> str:
    """A row for each device: the op's time, what bounds it, and how close to its ceiling it is."""
    rows = [_op_cells(found) for found in diagnoses]
    headers = (
        "device", "time", "bound by", "at ceiling", "of ceiling", "achieved", "FLOP/B", "ridge",
    )  # fmt: skip
    spares = (0, 0, 0, 0, 0, 0, 1, 2)
    columns = [_Column(*column) for column in zip(headers, zip(*rows), spares)]
    notes = []
    intensities = set(columns[6].cells) - {UNKNOWN}
    if len(intensities) == 1:
        # It is the op's, and on most devices the same.
        columns.pop(6)
        notes.append(f"FLOP/B of the op: {intensities.pop()}.")
    shown, left_out = _fitted(columns, width)
    if any(column.header == "ridge" for column in shown):
        notes.append(_RIDGE)
    return _text(shown, [*notes, *left_out, *_said_of_all(diagnoses)], width)


def _op_cells(found: Diagnosis) -> tuple[str, ...]:
    device_s = found.device_time.compute_kernels_s if found.device_time else found.accounted_s
    flops = found.counters.get("flops")
    moved = found.counters.get("bytes")
    # Several kernels (a cast before a product) share the roofs' sum.
    roofs = [row.roof_s for row in found.ops]
    roof_s = sum(r for r in roofs if r is not None) if None not in roofs else None
    regimes: dict[str, float] = {}
    for row in found.ops:
        regimes[row.regime] = regimes.get(row.regime, 0.0) + row.time_s
    bound = max(regimes, key=lambda name: regimes[name]) if regimes else UNKNOWN
    achieved = UNKNOWN
    if device_s and roof_s is not None:
        by_flops = bound == "compute"
        rate = flops if by_flops else moved
        achieved = si(rate / device_s if rate else None, "FLOP/s" if by_flops else "B/s")
    return (
        _device(found),
        # Without a roof the time is that of its traffic alone, which no notice leaves unsaid.
        time_text(device_s) if roof_s is not None else f">{time_text(device_s)}",
        bound,
        time_text(roof_s),
        share(roof_s, device_s),
        achieved,
        significant(flops / moved if flops and moved else None),
        significant(_ridge(found)),
    )


def _said_of_all(diagnoses: Sequence[Diagnosis]) -> list[str]:
    """Notices about the op itself; what is said of a device's data sheet is left to its report."""
    words = ("matrix path", "No ceiling", "No formula")
    return _one_for_all(
        (_device(found), notice)
        for found in diagnoses
        for notice in found.notices
        if any(word in notice for word in words)
    )


def _one_for_all(said: Iterable[tuple[str, str]]) -> list[str]:
    """Sentences that differ in the device's name alone are one, with all the names."""
    devices: dict[str, list[str]] = {}
    for device, sentence in said:
        blank = plain_name(sentence).replace(device, _BLANK)
        devices.setdefault(blank, []).append(device)
    return [
        blank.replace(_BLANK, ", ".join(dict.fromkeys(names))) for blank, names in devices.items()
    ]


def _assumed(diagnoses: Sequence[Diagnosis]) -> list[str]:
    """What was not known of the step, the same on every device as a rule."""
    return _one_for_all(
        (_device(found), notice)
        for found in diagnoses
        for notice in found.notices[: int(found.source.get("assumptions", 0))]
    )


def _cannot_run(refused: Sequence[tuple[str, str]]) -> list[str]:
    return _one_for_all((device, f"No prediction: {reason}.") for device, reason in refused)


def one_reason(refused: Sequence[tuple[str, str]]) -> str:
    """Why some devices cannot run a step, each reason once."""
    return " ".join(_one_for_all(refused))


def refusals(refused: Sequence[tuple[str, str]], width: int = 80) -> str:
    """Devices that an op cannot run on, each reason once: pairs of device and reason."""
    return _wrapped(_one_for_all(refused), width)


def explanation(found: Diagnosis, width: int = 80) -> str:
    """Where a prediction comes from: the arithmetic of its longest ops, and what is known least."""
    text = ""
    for title, key in (("Where the time comes from", "explained"),
                       ("Least certain", "uncertain")):  # fmt: skip
        sentences = [plain_name(str(sentence), 2000) for sentence in found.source.get(key) or ()]
        if sentences:
            text += f"\n{title}, {_device(found)}\n" + _wrapped(sentences, width)
    return text


def _device(found: Diagnosis) -> str:
    return plain_name(str(found.source.get("device") or found.device.name))


def _step(found: Diagnosis) -> str:
    return time_text(found.accounted_s)


def _interval(found: Diagnosis) -> str:
    """In the unit of the step; a dash where nothing is known of it."""
    time = found.step.time_s
    if time.high is None or time.low == time.high:
        return UNKNOWN
    scale = TimeScale.of(found.accounted_s)
    return f"{scale.number(time.low)} to {scale.number(time.high)}"


def _ridge(found: Diagnosis) -> float | None:
    """FLOPs per byte at which the 16-bit matrix rate and the memory take the same time."""
    values = {row.name: row.value for row in found.device.ceilings}
    rate = values.get("matrix.bfloat16") or values.get("matrix.float16")
    if rate is None or not found.device.levels:
        return None
    return rate / found.device.levels[-1].rates[0][1]


def _exceeds_memory(found: Diagnosis) -> bool:
    peak, available = found.counters.get("peak_memory_bytes"), found.device.memory_bytes
    return peak is not None and available is not None and peak > available


def _too_small(diagnoses: Sequence[Diagnosis]) -> list[str]:
    return [
        f"{_device(found)}: no prediction; the step needs about "
        f"{si(found.counters['peak_memory_bytes'], 'B')} and would run out of its "
        f"{si(found.device.memory_bytes, 'B')}. {what_fits(found)}".rstrip()
        for found in diagnoses
        if _exceeds_memory(found)
    ]


def _memory(found: Diagnosis) -> str:
    peak = found.counters.get("peak_memory_bytes")
    if peak is None:
        return UNKNOWN
    available = found.device.memory_bytes
    if available is None:
        return si(peak, "B")
    return f"{si(peak, 'B')}, {percent(peak / available)}"


def _fitted(columns: Sequence[_Column], width: int) -> tuple[list[_Column], list[str]]:
    """The columns that fit, and a sentence about those that do not."""
    shown = list(columns)
    while _width(shown) > width and any(column.spare for column in shown):
        shown.remove(max(shown, key=lambda column: column.spare))
    missing = [column.header for column in columns if column not in shown]
    if not missing:
        return shown, []
    return shown, [
        f"Columns that do not fit: {', '.join(missing)}; COLUMNS={_width(columns)} shows them."
    ]


def _widths(columns: Sequence[_Column]) -> list[int]:
    return [max(len(cell) for cell in (column.header, *column.cells)) for column in columns]


def _width(columns: Sequence[_Column]) -> int:
    return sum(_widths(columns)) + 2 * (len(columns) - 1)


def _text(columns: Sequence[_Column], notes: Sequence[str], width: int) -> str:
    table = TextTable(
        title="",
        columns=tuple(Column(c.header, number=i > 0) for i, c in enumerate(columns)),
        rows=tuple(Row(cells) for cells in zip(*(column.cells for column in columns))),
    )
    return "".join(line + "\n" for line in plain_lines(table)) + _wrapped(notes, width)


def _wrapped(sentences: Sequence[str], width: int) -> str:
    return "".join(
        textwrap.fill(sentence, width, subsequent_indent="  ", break_on_hyphens=False) + "\n"
        for sentence in sentences
    )
