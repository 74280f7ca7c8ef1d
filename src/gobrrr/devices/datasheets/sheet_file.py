"""Data sheets as TOML: a table for each device, every figure with its unit and where it is stated.

``[sources]`` names the documents of a file, ``{NAME}`` in a source stands for one of them. A figure
is ``"3.35 TB/s"``, stated in the device's ``source``, or ``["3.35 TB/s", "another source"]``, in
which ``{source}`` is the device's. ``like`` names a device whose figures are taken where the table
has none; ``"unknown"`` takes one back.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn, get_args

import msgspec

from gobrrr.devices.datasheets.sheet import Cache, DeviceSheet, Figure, Kind
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.ops import ITEM_SIZE_BYTES

# Field of the file -> field of ``DeviceSheet`` and unit.
_SINGLE = {
    "memory": ("memory_bytes", "B"),
    "memory_bandwidth": ("memory_bytes_per_s", "B/s"),
    "multiprocessors": ("multiprocessors", ""),
    "clock": ("clock_hz", "Hz"),
    "matrix_clock": ("matrix_clock_hz", "Hz"),
    "base_clock": ("base_clock_hz", "Hz"),
    "board_power": ("board_power_w", "W"),
    "kernel_fixed": ("kernel_fixed_s", "s"),
    "exp": ("exp_per_s", "op/s"),
}
_LINKS = ("nvlink", "xgmi", "ethernet", "ici", "neuronlink", "c2c", "pcie")
_CACHE = {"capacity": "B", "bandwidth": "B/s", "usable": "B"}
_UNITS: dict[str, str] = {
    **{name: unit for name, (_, unit) in _SINGLE.items()},
    **{
        f"{group}.{dtype}": "FLOP/s" if "float" in dtype or dtype == "tf32" else "op/s"
        for group in ("matrix", "vector")
        for dtype in ("tf32", *ITEM_SIZE_BYTES)
    },
    **{f"interconnect.{link}": "B/s" for link in _LINKS},
    **{f"cache.{level}.{name}": unit for level in ("l2", "l3") for name, unit in _CACHE.items()},
}
_TEXTS = ("name", "vendor", "architecture", "kind", "note", "source", "like")
_NAMES = ("driver_names", "aliases")
_KNOWN = (*_UNITS, *_TEXTS, *_NAMES, "link_peers")
# What a device cannot be without, with an example.
_REQUIRED = {"architecture": "Hopper", "kind": "cuda", "memory_bandwidth": "3.35 TB/s"}

_QUANTITY = re.compile(r"([+-]?[\d.]+) *([kMGTP]?|[KMGT]i|[mun])(|B|B/s|FLOP/s|op/s|Hz|s|W)")
_EXPONENTS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
# Such as a reader would write, for the sentence about one that is wrong.
_SUCH_AS = {
    "": "132", "B": "80 GiB", "B/s": "3.35 TB/s", "FLOP/s": "989.4 TFLOP/s", "op/s": "4.18 Top/s",
    "Hz": "1.98 GHz", "s": "1.5 us", "W": "700 W",
}  # fmt: skip

# Integers narrower than 32 bits run as those (packed instructions are not what compilers emit for
# tensors of bytes); 64 bits take two additions, the second with carry.
_NARROW = ("bool", "uint8", "int8", "int16")
_AS_INT32 = "as int32: "
_TWO_ADDITIONS = "two additions of 32 bits each: "

# By the name of a field with its dots: figures, texts, ``None`` for what is taken back.
_Row = dict[str, Any]


def read_sheets(
    path: Path, known: Callable[[str], DeviceSheet | None], *, label: str | None = None
) -> tuple[DeviceSheet, ...]:
    """The sheets of one file, in its order.

    Args:
        path: of the TOML file.
        known: the sheet of a device by its name, for ``like``; those before it in the file too.
        label: what the file is called in errors and in sources that are not stated.

    Raises:
        InputError: the file cannot be read, or a field is missing, unknown or not what it should
            be: one sentence with the file and the field.
    """
    label = label or path.name
    try:
        content: dict[str, Any] = msgspec.toml.decode(path.read_bytes())
    except OSError as error:
        raise InputError(f"{label} cannot be read: {error.strerror or error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{label} is not TOML: {error}") from error
    sources = _sources(content.pop("sources", {}), label)
    found: dict[str, DeviceSheet] = {}
    for key, table in content.items():
        if not isinstance(table, dict):
            raise InputError(f"{label}: {key} stands outside a device's table, such as [my-card]")
        where = _Where(label, key)
        row = _row(table, sources, where)
        if "like" in row:
            base = found.get(row["like"]) or known(row["like"])
            if base is None:
                where.wrong("like", f"is {row['like']!r}, no device that gobrrr has")
            row = {**_row_of(base), **row}
        found[key] = _sheet(key, row, where)
    return tuple(found.values())


class _Where:
    """A device's table in a file, for errors."""

    def __init__(self, label: str, key: str) -> None:
        self.label, self.key = label, key

    def wrong(self, field: str, what: str) -> NoReturn:
        raise InputError(f"{self.label}: {field} of [{self.key}] {what}")


def _sources(given: object, label: str) -> dict[str, str]:
    where, found = _Where(label, "sources"), dict[str, str]()
    if not isinstance(given, dict):
        raise InputError(f"{label}: sources is no table of names and documents")
    for name, text in given.items():
        if not isinstance(text, str):
            where.wrong(name, "is no text")
        found[name] = _filled(text, found, where, name)
    return found


def _filled(text: str, sources: Mapping[str, str], where: _Where, field: str) -> str:
    """``text`` with the documents for their names in braces."""

    def document(match: re.Match[str]) -> str:
        name = match[1]
        if name not in sources:
            where.wrong(
                field,
                f"has the source {{{name}}}, which is none of [sources]{_nearest(name, sources)}",
            )
        return sources[name]

    return re.sub(r"\{(\w+)\}", document, text) if "{" in text else text


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _flat(table: Mapping[str, Any], before: str = "") -> _Row:
    """Fields of tables in a table, by their names with dots."""
    found: _Row = {}
    for name, value in table.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{before}{name}.")
        else:
            found[before + name] = value
    return found


def _row(table: Mapping[str, Any], sources: Mapping[str, str], where: _Where) -> _Row:
    given = _flat(table)
    for field in given:
        if field not in _KNOWN:
            where.wrong(field, f"is no field of a data sheet{_nearest(field, _KNOWN)}")
    row: _Row = {
        field: _filled(_text(value, field, where), sources, where, field)
        for field, value in given.items() if field in _TEXTS
    }  # fmt: skip
    stated_in: str = row.pop("source", where.label)
    sources = {**sources, "source": stated_in}
    for field, value in given.items():
        if value == "unknown" and (field in _UNITS or field == "link_peers"):
            row[field] = None
        elif field in _NAMES:
            if not isinstance(value, list):
                where.wrong(field, f'is {value!r}, not a list of names, such as ["NVIDIA H200"]')
            row[field] = tuple(_text(name, field, where) for name in value)
        elif field == "link_peers":
            if type(value) is not int or value < 1:
                where.wrong(field, f"is {value!r}, not a number of devices")
            row[field] = value
        elif field in _UNITS:
            quantity, source = value, stated_in
            if isinstance(value, list):
                if len(value) != 2:
                    where.wrong(field, "is no pair of a figure and its source")
                quantity, source = value[0], _text(value[1], field, where)
            row[field] = Figure(
                _value(quantity, field, where), _filled(source, sources, where, field)
            )
    return row


def _text(value: object, field: str, where: _Where) -> str:
    if not isinstance(value, str) or not value:
        where.wrong(field, f"is {value!r}, not a text")
    return value


def _value(quantity: object, field: str, where: _Where) -> float:
    """In the field's unit, without a prefix."""
    unit = _UNITS[field]
    match = None
    if isinstance(quantity, str) or (type(quantity) in (int, float) and not unit):
        match = _QUANTITY.fullmatch(str(quantity).strip())
    try:
        if match is None or match[3] != unit:
            raise ValueError
        number, prefix = match[1], match[2]
        value = (
            float(number) * _BINARY[prefix]
            if prefix in _BINARY
            else float(f"{number}e{_EXPONENTS[prefix]}")
        )
    except ValueError:
        kind = f"a number with the unit {unit}" if unit else "a number"
        example = _SUCH_AS[unit]
        example = f'"{example}"' if unit else example
        where.wrong(field, f"is {quantity!r}, not {kind}, such as {example}")
    if not (value > 0 and isfinite(value)):
        where.wrong(field, f"is {quantity!r}, which is not above 0")
    return value


def _sheet(key: str, row: _Row, where: _Where) -> DeviceSheet:
    for field, example in _REQUIRED.items():
        if row.get(field) is None:
            where.wrong(field, f'is missing, such as {field} = "{example}"')
    if row["kind"] not in get_args(Kind):
        where.wrong("kind", f"is {row['kind']!r}, not one of {', '.join(get_args(Kind))}")
    figures = {field: value for field, value in row.items() if value is not None}

    def group(name: str) -> dict[str, Figure]:
        start = f"{name}."
        return {
            field.removeprefix(start): figure
            for field, figure in figures.items() if field.startswith(start)
        }  # fmt: skip

    caches = group("cache")
    levels = sorted({name.partition(".")[0] for name in caches})
    for level in levels:
        if f"{level}.capacity" not in caches:
            where.wrong(f"cache.{level}.capacity", 'is missing, such as "50 MiB"')
    # Typed by ``_SINGLE``, which mypy does not see.
    single: dict[str, Any] = {name: figures.get(field) for field, (name, _) in _SINGLE.items()}
    return DeviceSheet(
        key=key,
        name=row.get("name", key),
        vendor=row.get("vendor", ""),
        architecture=row["architecture"],
        kind=row["kind"],
        driver_names=row.get("driver_names", ()),
        aliases=row.get("aliases", ()),
        matrix=group("matrix"),
        vector=_with_integers(group("vector")),
        caches=tuple(
            Cache(
                level,
                caches[f"{level}.capacity"],
                caches.get(f"{level}.bandwidth"),
                caches.get(f"{level}.usable"),
            )
            for level in levels
        ),
        interconnect=group("interconnect"),
        link_peers=row.get("link_peers"),
        note=row.get("note", ""),
        **single,
    )


def _with_integers(rates: dict[str, Figure]) -> dict[str, Figure]:
    """``rates`` with those of the other integers, which follow from int32."""
    of_32 = rates.pop("int32", None)
    if of_32 is None:
        return rates
    narrow = Figure(of_32.value, _AS_INT32 + of_32.source)
    return {
        **rates,
        **{name: rates.get(name, narrow) for name in _NARROW},
        "int32": of_32,
        "int64": rates.get("int64", Figure(of_32.value / 2, _TWO_ADDITIONS + of_32.source)),
    }


def _row_of(sheet: DeviceSheet) -> _Row:
    """All that a sheet says of the device, by the fields of a file; its names are its own."""
    row: _Row = {
        "vendor": sheet.vendor, "architecture": sheet.architecture, "kind": sheet.kind,
        "note": sheet.note or None, "link_peers": sheet.link_peers,
        **{field: getattr(sheet, name) for field, (name, _) in _SINGLE.items()},
    }  # fmt: skip
    for cache in sheet.caches:
        stated = (cache.capacity_bytes, cache.bytes_per_s, cache.usable_bytes)
        row |= {f"cache.{cache.name}.{name}": figure for name, figure in zip(_CACHE, stated)}
    for group in ("matrix", "vector", "interconnect"):
        rates: Mapping[str, Figure] = getattr(sheet, group)
        row |= {
            f"{group}.{name}": figure
            for name, figure in rates.items()
            if not figure.source.startswith((_AS_INT32, _TWO_ADDITIONS))
        }
    return {field: value for field, value in row.items() if value is not None}


def sheet_as_toml(sheet: DeviceSheet, key: str) -> str:
    """A sheet as the file of another device, ``key``, that starts from it."""

    def quoted(text: str) -> str:
        return msgspec.json.encode(text).decode()

    lines = [f"[{quoted(key)}]", f"name = {quoted(key)}"]
    for field, value in _row_of(sheet).items():
        if isinstance(value, Figure):
            text = _quantity(value.value, _UNITS[field])
            text = quoted(text) if _UNITS[field] else text
            lines.append(f"{field} = [{text}, {quoted(value.source)}]")
        else:
            lines.append(f"{field} = {value if isinstance(value, int) else quoted(value)}")
    return "\n".join(lines) + "\n"


def _quantity(value: float, unit: str) -> str:
    """A figure with its unit and every digit, as ``_value`` reads it."""
    from decimal import Decimal

    if not unit:
        return f"{value:.15g}"
    if unit == "B":
        for prefix, factor in reversed(_BINARY.items()):
            if 1 <= value / factor < 1024 and 8 * value % factor == 0:
                return f"{value / factor:.15g} {prefix}B"
    exact = Decimal(repr(value))
    fitting = [entry for entry in _EXPONENTS.items() if value >= 10.0 ** entry[1]]
    prefix, exponent = fitting[-1] if fitting else ("n", -9)
    number = (exact / Decimal(10) ** exponent).normalize()
    return f"{number:f} {prefix}{unit}"
