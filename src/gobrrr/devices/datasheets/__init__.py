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
    nvidia_export,
    nvidia_geforce,
    nvidia_hopper_blackwell,
    nvidia_more_cards,
    nvidia_workstation,
    xla,
)
from gobrrr.devices.datasheets.base_clocks import BASE_CLOCK_HZ
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
    nvidia_more_cards,
    nvidia_geforce,
    nvidia_export,
    amd,
    intel,
    xla,
    apple,
    cpus,
)


@cache
def rows_of(tables: tuple[Table, ...]) -> tuple[DeviceSheet, ...]:
    """All rows in the order of the tables, with power and base clock where a row has none."""
    return tuple(
        replace(
            sheet,
            board_power_w=sheet.board_power_w or BOARD_POWER_W.get(sheet.key),
            base_clock_hz=sheet.base_clock_hz or BASE_CLOCK_HZ.get(sheet.key),
        )
        for table in tables
        for sheet in table.SHEETS
    )
