"""Find a device in the data-sheet table, and turn its row into ceilings."""

from __future__ import annotations

import difflib
import re
from functools import cache
from pathlib import Path

from gobrrr.devices import datasheets
from gobrrr.devices.ceilings import Ceiling, Ceilings, MemoryLevel
from gobrrr.devices.datasheets.sheet import DeviceSheet, Figure
from gobrrr.devices.datasheets.sheet_file import read_sheets
from gobrrr.timeline.errors import InputError

# What names the processor of this machine among devices.
HERE = "cpu"
# Names that mean no row of the table.
_WORDS = (HERE, "all")
_CARD = ".toml"
# Cards of the user by their keys, read from their files in this process.
_cards: dict[str, DeviceSheet] = {}


def all_datasheets() -> tuple[DeviceSheet, ...]:
    """Every row, in the order of the tables."""
    return datasheets.rows_of(datasheets.TABLES)


def find_datasheet(name: str, *, multiprocessors: int | None = None) -> DeviceSheet | None:
    """The row of a device, by its key, its full name, a driver's name or an alias.

    Cards of the user that ``named_datasheet`` has read come first.

    Names match whole, without regard to case, spaces, hyphens or "(R)": a laptop part, a slice of
    a GPU ("... MIG 1g.10gb") or a successor is another device, not a close one.

    Args:
        name: ``"H100-SXM"``, ``"NVIDIA H100 80GB HBM3"``.
        multiprocessors: SMs or compute units, if known. Decides where a driver's name means
            several devices (``AMD Instinct MI250X / MI250``), and refuses a device that has
            fewer than its row says (a slice, or one with parts fused off).

    Returns:
        ``None`` if no row has the name.
    """
    wanted = _normal(name)
    own = tuple(card for card in _cards.values() if wanted in map(_normal, _names(card)))
    rows = own or _index(datasheets.TABLES).get(wanted, ())
    if multiprocessors is None:
        return rows[0] if rows else None
    for row in rows:
        if row.multiprocessors is None or row.multiprocessors.value == multiprocessors:
            return row
    return None


def named_datasheet(name: str) -> DeviceSheet:
    """The row of a device that a user names, or the card in the user's file ``my-card.toml``.

    A card is found under its names from then on.

    Raises:
        InputError: no row has the name (names the closest ones), a file is wrong (names the field),
            or what the row says cannot all be true.
    """
    # Not at the top: reading a trace needs neither, nor ``statistics``, which this brings.
    from gobrrr.devices.contradictions import contradiction_of_sheet

    is_file = name.endswith(_CARD)
    sheet = _read_card(name) if is_file else find_datasheet(name)
    if sheet is None:
        close = closest_devices(name)
        hint = f"; did you mean {', '.join(close)}?" if close else ""
        raise InputError(
            f"no data sheet for the device {name!r}{hint} (gobrrr devices lists all; a card of "
            "your own is a file, my-card.toml)"
        )
    wrong = contradiction_of_sheet(sheet)
    if wrong is not None:
        which = name if is_file else f"the data sheet of {sheet.key}"
        raise InputError(f"{which} contradicts itself: {wrong}")
    if is_file:
        _cards[sheet.key] = sheet
    return sheet


def _read_card(file: str) -> DeviceSheet:
    found = read_sheets(Path(file), find_datasheet, label=file)
    if len(found) != 1:
        raise InputError(f"{file} has {len(found)} devices, and a card is one: [my-card]")
    if not re.fullmatch(r"[\w.+-]+", found[0].key):
        raise InputError(
            f"{file}: the key {found[0].key!r} has more than letters, digits and - in it: [my-card]"
        )
    taken = {*_WORDS, *_index(datasheets.TABLES)}
    for field, name in (("key", found[0].key), ("name", found[0].name)):
        if _normal(name) in taken or name.endswith(_CARD):
            raise InputError(
                f"{file}: the {field} {name!r} is another device's: give the card its own, such "
                f"as my-{name}"
            )
    return found[0]


def closest_devices(name: str, count: int = 3) -> tuple[str, ...]:
    """Keys of the rows whose names look most like ``name``, best first; possibly none."""
    wanted = _normal(name)
    scores: dict[str, float] = {}
    for known, rows in _index(datasheets.TABLES).items():
        score = difflib.SequenceMatcher(None, wanted, known).ratio()
        if wanted and (wanted in known or known in wanted):
            score += 0.5
        for row in rows:
            scores[row.key] = max(score, scores.get(row.key, 0.0))
    ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return tuple(key for key, score in ranked[:count] if score >= 0.5)


def ceilings_from_datasheet(device_name: str) -> Ceilings | None:
    """Ceilings of a device that need not be here; ``None`` if it is not in the table.

    What no sheet states has no row. Bandwidths are one rate for every mix of reads and writes.
    """
    sheet = find_datasheet(device_name)
    return None if sheet is None else ceilings_of_sheet(sheet)


def ceilings_of_sheet(sheet: DeviceSheet) -> Ceilings:
    """The ceilings that one row of the table states."""
    rows: dict[str, Ceiling] = {}

    def add(name: str, figure: Figure | None, unit: str, factor: float = 1.0) -> None:
        if figure is not None:
            rows[name] = Ceiling(name, figure.value * factor, unit, "datasheet", figure.source)

    for dtype, rate in sheet.matrix.items():
        add(f"matrix.{dtype}", rate, "op/s" if dtype == "int8" else "FLOP/s")
    for dtype in ("float32", "float64"):
        if dtype in sheet.vector and f"matrix.{dtype}" not in rows:
            vector = sheet.vector[dtype]
            add(
                f"matrix.{dtype}",
                Figure(vector.value, f"no matrix unit for it: vector rate; {vector.source}"),
                "FLOP/s",
            )
    for dtype, rate in sheet.vector.items():
        floating = "float" in dtype
        add(f"vector.{dtype}", rate, "FLOP/s" if floating else "op/s")
        if floating:
            # A multiplication fills the slot of a fused multiply-add, which counts two.
            add(f"vector.{dtype}.multiply", rate, "FLOP/s", 0.5)
    add("vector.float32.exp", sheet.exp_per_s, "op/s")
    for level in sheet.caches:
        add(f"memory.{level.name}.capacity", level.capacity_bytes, "B")
        add(f"memory.{level.name}.read", level.bytes_per_s, "B/s")
    add("memory.dram.capacity", sheet.memory_bytes, "B")
    for pattern in ("read", "copy", "write", "triad"):
        add(f"memory.dram.{pattern}", sheet.memory_bytes_per_s, "B/s")
    for link, rate in sheet.interconnect.items():
        add(f"interconnect.{link}", rate, "B/s")
    add("kernel.fixed", sheet.kernel_fixed_s, "s")
    return Ceilings(sheet.name, rows, _levels(sheet), _notices(sheet))


def _levels(sheet: DeviceSheet) -> tuple[MemoryLevel, ...]:
    levels = []
    for level in sheet.caches:
        if level.bytes_per_s is not None:
            holds = level.usable_bytes or level.capacity_bytes
            levels.append(
                MemoryLevel(level.name, int(holds.value), ((0.0, level.bytes_per_s.value),))
            )
    levels.append(MemoryLevel("dram", None, ((0.0, sheet.memory_bytes_per_s.value),)))
    return tuple(levels)


def _notices(sheet: DeviceSheet) -> tuple[str, ...]:
    found = [f"{sheet.key}: {sheet.note}"] if sheet.note else []
    if not sheet.vector:
        found.append(f"No vector rate is known for {sheet.name}.")
    if sheet.kind != "cpu" and sheet.kernel_fixed_s is None:
        found.append(fixed_cost_unknown(sheet))
    return tuple(found)


def fixed_cost_unknown(sheet: DeviceSheet) -> str:
    """The notice about a sheet without the time of a kernel that does nothing."""
    return f"The fixed cost of a kernel is not known for {sheet.name}."


@cache
def _index(tables: tuple[Path, ...]) -> dict[str, tuple[DeviceSheet, ...]]:
    found: dict[str, list[DeviceSheet]] = {}
    for sheet in datasheets.rows_of(tables):
        for name in _names(sheet):
            rows = found.setdefault(_normal(name), [])
            if sheet not in rows:
                rows.append(sheet)
    return {name: tuple(rows) for name, rows in found.items()}


def _names(sheet: DeviceSheet) -> tuple[str, ...]:
    return (sheet.key, sheet.name, *sheet.driver_names, *sheet.aliases)


def _normal(name: str) -> str:
    """Lower case, without trade marks, and without what separates words."""
    return re.sub(r"[^a-z0-9+/.]", "", re.sub(r"\((r|tm)\)", "", name.lower()))
