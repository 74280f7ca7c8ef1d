"""The data-sheet table: one file per vendor or generation, one row per device.

A new device is one row in one of these files; a new file is one line in ``TABLES``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Protocol

from gobrrr.devices.datasheets import (
    amd,
    apple,
    cpus,
    intel,
    nvidia_datacenter,
    nvidia_hopper_blackwell,
    nvidia_workstation,
)
from gobrrr.devices.datasheets.board_power import BOARD_POWER_W
from gobrrr.devices.datasheets.sheet import DeviceSheet


class Table(Protocol):
    """One file of rows. A module with this name is one."""

    @property
    def SHEETS(self) -> tuple[DeviceSheet, ...]:  # noqa: N802 - a module's constant
        """Its rows."""


TABLES: tuple[Table, ...] = (
    nvidia_datacenter,
    nvidia_hopper_blackwell,
    nvidia_workstation,
    amd,
    intel,
    apple,
    cpus,
)


@cache
def rows_of(tables: tuple[Table, ...]) -> tuple[DeviceSheet, ...]:
    """All rows in the order of the tables, with the board's power where its row does not say it."""
    return tuple(
        sheet
        if sheet.board_power_w is not None
        else replace(sheet, board_power_w=BOARD_POWER_W.get(sheet.key))
        for table in tables
        for sheet in table.SHEETS
    )
