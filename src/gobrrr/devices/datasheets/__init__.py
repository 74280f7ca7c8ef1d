"""The data-sheet table: one file per vendor or generation, one row per device.

A new device is one row in one of these files; a new file is one line in ``TABLES``.
"""

from __future__ import annotations

from dataclasses import replace

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

TABLES = (
    nvidia_datacenter,
    nvidia_hopper_blackwell,
    nvidia_workstation,
    amd,
    intel,
    apple,
    cpus,
)

SHEETS: tuple[DeviceSheet, ...] = tuple(
    replace(sheet, board_power_w=BOARD_POWER_W.get(sheet.key))
    for table in TABLES
    for sheet in table.SHEETS
)
