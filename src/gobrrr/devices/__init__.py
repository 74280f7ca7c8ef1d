"""Identify the machine; its ceilings: measured, from a data sheet, or given in a file."""

from __future__ import annotations

from gobrrr.devices.ceilings import Ceiling, Ceilings, MemoryLevel
from gobrrr.devices.datasheet import ceilings_from_datasheet, closest_devices
from gobrrr.devices.identity import Cache, DeviceIdentity, identify
from gobrrr.devices.machine import ceilings_for_this_machine
from gobrrr.devices.storage import CeilingsFileError, ceilings_from_file, save_ceilings

__all__ = [
    "Cache",
    "Ceiling",
    "Ceilings",
    "CeilingsFileError",
    "DeviceIdentity",
    "MemoryLevel",
    "ceilings_for_this_machine",
    "ceilings_from_datasheet",
    "ceilings_from_file",
    "closest_devices",
    "identify",
    "save_ceilings",
]
