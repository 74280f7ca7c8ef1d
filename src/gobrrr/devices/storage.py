"""Ceilings as JSON: the cache, files that users give, files to pass on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from gobrrr.devices.ceilings import Ceiling, Ceilings, How, MemoryLevel
from gobrrr.devices.contradictions import contradiction
from gobrrr.timeline.files import write_atomically

FORMAT = 1


class CeilingsFileError(ValueError):
    """The file cannot be read as ceilings; the message is one sentence that says why."""


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    value: float
    unit: str
    how: How = "given"
    source: str = ""
    sm_hz: float | None = None


class _Level(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    rates: list[tuple[float, float]]
    capacity_bytes: int | None = None
    update_bytes_per_s: float | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    device: str
    rows: dict[str, _Row]
    format: int = FORMAT
    levels: list[_Level] = []
    notices: list[str] = []


def save_ceilings(ceilings: Ceilings, path: str | os.PathLike[str]) -> None:
    """Write ``ceilings`` as JSON; a reader sees the old file or the new one, never a part.

    Raises:
        OSError: the folder cannot be made or written.
    """
    content = _File(
        device=ceilings.device,
        rows={
            row.name: _Row(row.value, row.unit, row.how, row.source, row.sm_hz)
            for row in ceilings.rows.values()
        },
        levels=[
            _Level(level.name, list(level.rates), level.capacity_bytes, level.update_bytes_per_s)
            for level in ceilings.levels
        ],
        notices=list(ceilings.notices),
    )
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, msgspec.json.format(msgspec.json.encode(content), indent=1))


def ceilings_from_file(path: str | os.PathLike[str]) -> Ceilings:
    """Read what ``save_ceilings`` wrote, or what a user did.

    A user's file needs ``device`` and ``rows``: ``{"matrix.float32": {"value": 1e13, "unit":
    "FLOP/s"}}``; ``how`` is then ``given`` and ``source`` the file's name. ``levels`` may be left
    out if there is a row ``memory.dram.copy`` (or ``read``): one level with that rate.

    Raises:
        OSError: the file cannot be read.
        CeilingsFileError: it is not such JSON, a number in it cannot be a ceiling, or two of them
            contradict each other.
    """
    path = Path(path)
    try:
        content = msgspec.json.decode(path.read_bytes(), type=_File)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CeilingsFileError(f"{path.name} is not a ceilings file: {error}") from error
    if content.format != FORMAT:
        raise CeilingsFileError(
            f"{path.name} has format {content.format}; this gobrrr reads format {FORMAT}"
        )
    rows = {}
    for name, row in content.rows.items():
        zero = name.endswith(_MAY_BE_ZERO)
        if not (row.value >= 0 if zero else row.value > 0):
            least = "a number of at least 0" if zero else "a positive number"
            raise CeilingsFileError(f"{path.name}: {name} is {row.value}, not {least}")
        source = row.source or path.name
        rows[name] = Ceiling(name, row.value, row.unit, row.how, source, row.sm_hz)
    levels = tuple(_level(level, path.name) for level in content.levels)
    found = Ceilings(content.device, rows, levels or _dram_level(rows.get), tuple(content.notices))
    wrong = contradiction(found)
    if wrong is not None:
        raise CeilingsFileError(f"{path.name}: {wrong}")
    return found


# Costs too small to measure.
_MAY_BE_ZERO = ("kernel.fixed", "launch.latency", "synchronise", "parallel.fork_join")


def _level(level: _Level, file: str) -> MemoryLevel:
    rates = tuple(sorted(level.rates))
    if not rates or any(not rate > 0 or not 0 <= share <= 1 for share, rate in rates):
        raise CeilingsFileError(f"{file}: level {level.name} needs rates of (write share, bytes/s)")
    return MemoryLevel(level.name, level.capacity_bytes, rates, level.update_bytes_per_s)


def _dram_level(row: Callable[[str], Ceiling | None]) -> tuple[MemoryLevel, ...]:
    rates = [
        (fraction, found.value)
        for kind, fraction in (("read", 0.0), ("triad", 1 / 3), ("copy", 0.5), ("write", 1.0))
        if (found := row(f"memory.dram.{kind}")) is not None
    ]
    return (MemoryLevel("dram", None, tuple(rates)),) if rates else ()
