"""The data-sheet table: one file per vendor or generation, one row per device.

A new device is one row in one of these files; a new file is one line in ``TABLES``.
"""

from __future__ import annotations

from gobrrr.devices.datasheets import (
    amd,
    apple,
    cpus,
    intel,
    nvidia_datacenter,
    nvidia_hopper_blackwell,
    nvidia_workstation,
)
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

SHEETS: tuple[DeviceSheet, ...] = tuple(sheet for table in TABLES for sheet in table.SHEETS)
