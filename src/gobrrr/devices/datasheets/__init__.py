"""The data sheets: a TOML file for each vendor or kind, a table for each device.

``sheet_file`` has the format. A new device is one table in one of these files; a new file is one
line in ``TABLES``.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from gobrrr.devices.datasheets.sheet import DeviceSheet
from gobrrr.devices.datasheets.sheet_file import read_sheets

_HERE = Path(__file__).parent

TABLES: tuple[Path, ...] = (
    _HERE / "nvidia.toml",
    _HERE / "amd.toml",
    _HERE / "intel.toml",
    _HERE / "xla.toml",
    _HERE / "apple.toml",
    _HERE / "cpus.toml",
)


@cache
def rows_of(tables: tuple[Path, ...]) -> tuple[DeviceSheet, ...]:
    """The rows of files, read once."""
    rows: list[DeviceSheet] = []
    for table in tables:
        rows += read_sheets(table, {sheet.key: sheet for sheet in rows}.get)
    return tuple(rows)
