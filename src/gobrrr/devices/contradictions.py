"""Figures of a device that cannot all be true, in one sentence.

For what a user writes: a file of ceilings, a card of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise
from statistics import median

from gobrrr.devices import datasheets
from gobrrr.devices.ceilings import Ceilings
from gobrrr.devices.datasheets.sheet import DeviceSheet
from gobrrr.timeline.quantities import si

# FLOPs of a multiprocessor (a compute unit, an Xe core) per clock in float32 outside the matrix
# unit: 128 and 256 on every GPU in the table. Less than half of the least, more than four times the
# most, is another device's clock, or a rate in another unit.
_PER_CLOCK = (64, 1024)
# What multiprocessors and clock allow, for sheets that round.
_ROUNDED = 0.95


def contradiction(ceilings: Ceilings) -> str | None:
    """What of the ceilings cannot be, as a clause; ``None`` if nothing contradicts.

    What was measured is not compared with each other: rates may be noisy, and a virtual machine may
    tell any size of its caches.
    """
    if any(row.how == "measured" for row in ceilings.rows.values()):
        return None
    return next(chain(_of_rows(ceilings), _of_levels(ceilings)), None)


def _of_rows(ceilings: Ceilings) -> Iterator[str]:
    for cache in ("l1", "l2", "l3"):
        names = f"memory.{cache}.capacity", "memory.dram.capacity"
        holds, behind = (ceilings.value(name) for name in names)
        if holds is not None and behind is not None and holds >= behind:
            yield f"{names[0]} ({si(holds, 'B')}) is not below {names[1]} ({si(behind, 'B')})"
        names = f"memory.{cache}.read", "memory.dram.read"
        fast, slow = (ceilings.value(name) for name in names)
        if fast is not None and slow is not None and fast < slow:
            yield f"{names[0]} ({si(fast, 'B/s')}) is below {names[1]} ({si(slow, 'B/s')})"


def _of_levels(ceilings: Ceilings) -> Iterator[str]:
    for level in ceilings.levels:
        if level.capacity_bytes is not None and level.capacity_bytes <= 0:
            yield f"level {level.name} holds {level.capacity_bytes} bytes"
    for near, far in pairwise(ceilings.levels):
        holds, behind = near.capacity_bytes, far.capacity_bytes
        if holds is None:
            # It would hold everything, and nothing would be left for those after it.
            yield f"level {near.name} has no capacity"
        elif behind is not None and holds >= behind:
            yield (
                f"level {near.name} ({si(holds, 'B')}) is not smaller than level {far.name} "
                f"({si(behind, 'B')}) after it"
            )
        rates = near.bandwidth_bytes_per_s(0.0), far.bandwidth_bytes_per_s(0.0)
        if rates[0] < rates[1]:
            yield (
                f"level {near.name} ({si(rates[0], 'B/s')}) is slower than level {far.name} "
                f"({si(rates[1], 'B/s')}) after it"
            )


def contradiction_of_sheet(sheet: DeviceSheet) -> str | None:
    """What of a data sheet cannot be, as a clause; ``None`` if nothing contradicts."""
    return next(chain(_memory(sheet), _clocks(sheet)), None)


def _memory(sheet: DeviceSheet) -> Iterator[str]:
    memory = sheet.memory_bytes
    for cache in sheet.caches:
        holds, rate = cache.capacity_bytes, cache.bytes_per_s
        if memory is not None and holds.value >= memory.value:
            yield (
                f"its {cache.name} holds {si(holds.value, 'B')} and its memory "
                f"{si(memory.value, 'B')}"
            )
        if rate is not None and rate.value < sheet.memory_bytes_per_s.value:
            yield (
                f"its {cache.name} reads at {si(rate.value, 'B/s')}, slower than its memory "
                f"at {si(sheet.memory_bytes_per_s.value, 'B/s')}"
            )
    for near, far in pairwise(sheet.caches):
        if near.capacity_bytes.value >= far.capacity_bytes.value:
            yield f"its {near.name} is not smaller than its {far.name}"
        if near.bytes_per_s and far.bytes_per_s and near.bytes_per_s.value < far.bytes_per_s.value:
            yield f"its {near.name} is slower than its {far.name}"


def _clocks(sheet: DeviceSheet) -> Iterator[str]:
    base, clock, units = sheet.base_clock_hz, sheet.clock_hz, sheet.multiprocessors
    if base is not None and clock is not None and clock.value < base.value:
        yield (
            f"its clock ({si(clock.value, 'Hz')}) is below its base clock ({si(base.value, 'Hz')})"
        )
    vector = sheet.vector.get("float32")
    if sheet.kind not in ("cuda", "hip") or clock is None or units is None or vector is None:
        return
    ticks = clock.value * units.value
    least, most = (per_clock * ticks for per_clock in _PER_CLOCK)
    if not least <= vector.value <= most:
        yield (
            f"{units.value:.0f} multiprocessors at {si(clock.value, 'Hz')} do "
            f"{si(least, 'FLOP/s')} to {si(most, 'FLOP/s')} in float32, and its vector "
            f"rate is {si(vector.value, 'FLOP/s')}"
        )
    matrix, alike = sheet.matrix.get("float16"), _float16_per_clock(sheet)
    if matrix is None or alike is None:
        return
    allowed = alike * (sheet.matrix_clock_hz or clock).value * units.value
    if not _ROUNDED * allowed <= matrix.value <= allowed / _ROUNDED:
        yield (
            f"its {units.value:.0f} multiprocessors allow {si(allowed, 'FLOP/s')} in float16 "
            f"as on other {sheet.architecture} devices, and its peak is "
            f"{si(matrix.value, 'FLOP/s')}"
        )


def _float16_per_clock(sheet: DeviceSheet) -> float | None:
    """FLOPs of a multiprocessor per clock on the other devices of its architecture."""
    found = []
    for other in datasheets.rows_of(datasheets.TABLES):
        rate, clock = other.matrix.get("float16"), other.matrix_clock_hz or other.clock_hz
        units = other.multiprocessors
        if other.key == sheet.key or other.architecture != sheet.architecture:
            continue
        if rate is not None and clock is not None and units is not None:
            found.append(rate.value / (clock.value * units.value))
    return median(found) if found else None
