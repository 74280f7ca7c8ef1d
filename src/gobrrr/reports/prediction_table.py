"""One step, or one op, on several devices: a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.reports.quantities import (
    UNKNOWN,
    percent,
    plain_name,
    share,
    si,
    significant,
    time_text,
)


def prediction_table(diagnoses: Sequence[Diagnosis]) -> str:
    """A row for each device: step, split, regime, speed of light, ridge point, memory."""
    headers = ("device", "step", "compute", "memory", "overhead", "bound by", "speed of light",
               "ridge", "needs")  # fmt: skip
    rows = []
    for found in diagnoses:
        step_s, split = found.step_s, found.split
        rows.append(
            (
                _device(found),
                time_text(step_s),
                share(split.compute_s, step_s),
                share(split.memory_s, step_s),
                share(split.overhead_s, step_s),
                found.regime + ("~" if found.close else ""),
                time_text(found.speed_of_light_s),
                significant(_ridge(found)),
                _memory(found),
            )
        )
    notes = ["ridge: FLOPs per byte above which 16-bit products are compute-bound."]
    if any(found.close for found in diagnoses):
        notes.append("~: a close call.")
    if any(cell.endswith("!") for row in rows for cell in row):
        notes.append("!: more memory than the device has.")
    if any(found.split.unmodelled_s for found in diagnoses):
        notes.append("Part of the time is unmodelled: see the report of one device.")
    return _layout(headers, rows) + "\n" + "\n".join(notes) + "\n"


def op_table(diagnoses: Sequence[Diagnosis]) -> str:
    """A row for each device: the op's time, what bounds it, and how close to the roof it is."""
    headers = ("device", "time", "bound by", "roof", "of roof", "achieved", "bandwidth",
               "FLOP/B", "ridge")  # fmt: skip
    rows = []
    for found in diagnoses:
        device_s = found.device_time.compute_kernels_s if found.device_time else found.step_s
        flops = found.counters.get("flops")
        moved = found.counters.get("bytes")
        # Several kernels (a cast before a product) share the roofs' sum.
        roofs = [row.roof_s for row in found.ops]
        roof_s = sum(r for r in roofs if r is not None) if None not in roofs else None
        regimes: dict[str, float] = {}
        for row in found.ops:
            regimes[row.regime] = regimes.get(row.regime, 0.0) + row.time_s
        bound = max(regimes, key=lambda name: regimes[name]) if regimes else UNKNOWN
        rows.append(
            (
                _device(found),
                # Without a roof the time is that of its traffic alone: no time to show.
                time_text(None if roof_s is None else device_s),
                bound,
                time_text(roof_s),
                share(roof_s, device_s),
                si(flops / device_s if flops and device_s else None, "FLOP/s"),
                si(moved / device_s if moved and device_s else None, "B/s"),
                significant(flops / moved if flops and moved else None),
                significant(_ridge(found)),
            )
        )
    return _layout(headers, rows) + "\n" + "".join(_said_of_all(diagnoses))


def _said_of_all(diagnoses: Sequence[Diagnosis]) -> list[str]:
    """Notices about the op itself; what is said of a device's data sheet is left to its report."""
    words = ("matrix path", "No ceiling", "No formula")
    found = [n for d in diagnoses for n in d.notices if any(word in n for word in words)]
    return [f"{plain_name(notice)}\n" for notice in dict.fromkeys(found)]


def refusal_row(device: str, reason: str) -> str:
    """A line for a device that the step cannot run on."""
    return f"{plain_name(device)}: {plain_name(reason)}\n"


def _device(found: Diagnosis) -> str:
    return plain_name(str(found.source.get("device") or found.device.name))


def _ridge(found: Diagnosis) -> float | None:
    """FLOPs per byte at which the 16-bit matrix rate and the memory take the same time."""
    values = {row.name: row.value for row in found.device.ceilings}
    rate = values.get("matrix.bfloat16") or values.get("matrix.float16")
    if rate is None or not found.device.levels:
        return None
    return rate / found.device.levels[-1].rates[0][1]


def _memory(found: Diagnosis) -> str:
    peak = found.counters.get("peak_memory_bytes")
    if peak is None:
        return UNKNOWN
    available = found.device.memory_bytes
    if available is None:
        return si(peak, "B")
    return f"{si(peak, 'B')}, {percent(peak / available)}" + ("!" if peak > available else "")


def _layout(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(headers, *rows)]
    lines = []
    for cells in (headers, *rows):
        first = cells[0].ljust(widths[0])
        rest = "  ".join(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:]))
        lines.append(f"{first}  {rest}".rstrip())
    return "\n".join(lines)
