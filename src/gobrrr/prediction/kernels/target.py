"""The device that a prediction is for: its ceilings and the few figures that kernels depend on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gobrrr.devices.ceilings import Ceilings
from gobrrr.devices.datasheet import (
    all_datasheets,
    ceilings_of_sheet,
    find_datasheet,
    fixed_cost_unknown,
    named_datasheet,
)
from gobrrr.devices.datasheets.sheet import DeviceSheet
from gobrrr.prediction.kernels.residuals import unmeasured
from gobrrr.timeline.quantities import time_text

# The shortest kernels of recorded steps take 0.6 us (MI300X), 1.5 us (H100), 1.9 us (MI210) and
# 2.2 us (MI250): the table of data sheets has the sources. Between launches of one stream, and on
# devices without a recorded figure, a kernel is taken to cost what it costs on Hopper.
TYPICAL_KERNEL_FIXED_S = 1.5e-6

# GeForce cards boost beyond the clock of their data sheet as long as power and temperature allow.
# Transformers measured on an RTX 4090 (timm's results, benchmarks/prediction_timm) reach up to
# 176 TFLOP/s in float16 products, 1.07 times the stated peak of 165.2.
GEFORCE_CLOCK_GAIN = 1.09


@dataclass(frozen=True)
class TargetDevice:
    """A device to predict for.

    Attributes:
        key: short name, ``"H100-SXM"``.
        name: the vendor's full name.
        kind: ``cuda``, ``hip``, ``cpu``, ...
        architecture: ``"Hopper"``; ``""`` if unknown. Coefficients are kept by architecture.
        ceilings: what it can do at the most.
        sheet: its row in the data-sheet table; ``None`` for measured ceilings without a row.
        multiprocessors: SMs or compute units; ``None`` if unknown (no wave quantisation then).
        memory_bytes: size of its memory; ``None`` if unknown.
        cache_bytes: what its last-level cache holds between kernels; 0 if unknown.
        kernel_fixed_s: seconds of a kernel that does nothing.
        mapped_from_bytes: allocations of at least that size are mapped anew each time, so that
            first touching them faults every page in; ``None`` where the allocator keeps all.
        notices: what had to be approximated, as sentences.
    """

    key: str
    name: str
    kind: str
    architecture: str
    ceilings: Ceilings
    sheet: DeviceSheet | None
    multiprocessors: int | None
    memory_bytes: int | None
    cache_bytes: int
    kernel_fixed_s: float
    notices: tuple[str, ...] = field(default=())
    mapped_from_bytes: int | None = None


def target_device(name: str) -> TargetDevice:
    """The device of a data-sheet row, by its key, full name, driver's name or alias, or its file.

    Raises:
        InputError: as ``named_datasheet``.
    """
    return target_of_sheet(named_datasheet(name))


def target_of_sheet(sheet: DeviceSheet, ceilings: Ceilings | None = None) -> TargetDevice:
    """The device of one row; ``ceilings`` stand in for those that the row states."""
    gain = clock_gain(sheet) if ceilings is None else 1.0
    found = ceilings or clocked(ceilings_of_sheet(sheet), gain)
    notices = list(found.notices)
    if gain != 1.0:
        notices.append(clock_notice(sheet))
    fixed_s = found.kernel_fixed_s
    if fixed_s is None:
        fixed_s = TYPICAL_KERNEL_FIXED_S if sheet.kind != "cpu" else 0.0
        if sheet.kind != "cpu":
            # Says what is done about it, in place of saying that it is not known.
            notices = [notice for notice in notices if notice != fixed_cost_unknown(sheet)]
            notices.append(_assumed_fixed(sheet.key))
    said = unmeasured(sheet.key, sheet.kind) if ceilings is None else None
    if said is not None:
        notices.insert(0, said)
    cache = sheet.caches[-1] if sheet.caches else None
    holds = None if cache is None else (cache.usable_bytes or cache.capacity_bytes)
    return TargetDevice(
        key=sheet.key,
        name=sheet.name,
        kind=sheet.kind,
        architecture=sheet.architecture,
        ceilings=found,
        sheet=sheet,
        multiprocessors=None if sheet.multiprocessors is None else int(sheet.multiprocessors.value),
        memory_bytes=None if sheet.memory_bytes is None else int(sheet.memory_bytes.value),
        cache_bytes=0 if holds is None else int(holds.value),
        kernel_fixed_s=fixed_s,
        notices=tuple(notices),
    )


def clock_gain(sheet: DeviceSheet) -> float:
    """The clock that a card runs at under load over the one that its data sheet's rates assume."""
    return GEFORCE_CLOCK_GAIN if "GeForce" in sheet.name else 1.0


def clock_notice(sheet: DeviceSheet) -> str:
    """What predictions do with the rates of a card whose clock is not that of its data sheet."""
    return (
        f"Rates of {sheet.key} are {clock_gain(sheet):.2f} times those of its data sheet (gobrrr "
        "devices): GeForce cards run at higher clocks than it assumes."
    )


def clocked(ceilings: Ceilings, gain: float) -> Ceilings:
    """The ceilings with the rates of the chip's own units at another clock; memory as it is."""
    if gain == 1.0:
        return ceilings
    rows = {
        name: replace(
            row, value=row.value * gain, source=f"{row.source}; {gain:.2f} times, for the clock"
        )
        if name.startswith(("matrix.", "vector."))
        else row
        for name, row in ceilings.rows.items()
    }
    return replace(ceilings, rows=rows)


def _assumed_fixed(device: str) -> str:
    return (
        f"An empty kernel is assumed to take {time_text(TYPICAL_KERNEL_FIXED_S)} on {device}, as "
        "measured on other GPUs."
    )


def target_of_ceilings(ceilings: Ceilings, kind: str) -> TargetDevice:
    """A device with measured or given ceilings, such as this machine's processor."""
    sheet = find_datasheet(ceilings.device)
    if sheet is not None:
        return target_of_sheet(sheet, ceilings)
    caches = [level for level in ceilings.levels if level.capacity_bytes is not None]
    fixed_s = ceilings.kernel_fixed_s
    notices = ceilings.notices
    if fixed_s is None:
        fixed_s = TYPICAL_KERNEL_FIXED_S if kind != "cpu" else 0.0
        if kind != "cpu":
            notices = (*notices, _assumed_fixed(ceilings.device))
    memory = ceilings.value("memory.dram.capacity")
    return TargetDevice(
        key=ceilings.device,
        name=ceilings.device,
        kind=kind,
        architecture="",
        ceilings=ceilings,
        sheet=None,
        multiprocessors=None,
        memory_bytes=None if memory is None else int(memory),
        cache_bytes=(caches[-1].capacity_bytes or 0) if caches else 0,
        kernel_fixed_s=fixed_s,
        notices=notices,
    )


def all_target_devices() -> tuple[TargetDevice, ...]:
    """One target for every row of the data-sheet table, in its order."""
    return tuple(target_of_sheet(sheet) for sheet in all_datasheets())
