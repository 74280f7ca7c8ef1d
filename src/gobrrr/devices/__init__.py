"""Identify the machine; its ceilings: measured, from a data sheet, or given in a file."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gobrrr.devices.backends import identify as identify
    from gobrrr.devices.ceilings import Ceiling as Ceiling
    from gobrrr.devices.ceilings import Ceilings as Ceilings
    from gobrrr.devices.ceilings import MemoryLevel as MemoryLevel
    from gobrrr.devices.datasheet import ceilings_from_datasheet as ceilings_from_datasheet
    from gobrrr.devices.datasheet import closest_devices as closest_devices
    from gobrrr.devices.identity import Cache as Cache
    from gobrrr.devices.identity import DeviceIdentity as DeviceIdentity
    from gobrrr.devices.machine import ceilings_beforehand as ceilings_beforehand
    from gobrrr.devices.machine import ceilings_for_this_machine as ceilings_for_this_machine
    from gobrrr.devices.machine import load_ceilings as load_ceilings
    from gobrrr.devices.machine import this_device as this_device
    from gobrrr.devices.storage import CeilingsFileError as CeilingsFileError
    from gobrrr.devices.storage import ceilings_from_file as ceilings_from_file
    from gobrrr.devices.storage import save_ceilings as save_ceilings

# Imported on first use (PEP 562): a trace needs data sheets, not what measures this machine.
_HOMES: dict[str, str] = {
    "Cache": "identity",
    "Ceiling": "ceilings",
    "Ceilings": "ceilings",
    "CeilingsFileError": "storage",
    "DeviceIdentity": "identity",
    "MemoryLevel": "ceilings",
    "ceilings_for_this_machine": "machine",
    "ceilings_from_datasheet": "datasheet",
    "ceilings_from_file": "storage",
    "closest_devices": "datasheet",
    "identify": "backends",
    "ceilings_beforehand": "machine",
    "load_ceilings": "machine",
    "save_ceilings": "storage",
    "this_device": "machine",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'gobrrr.devices' has no attribute {name!r}")
    value = getattr(import_module(f"gobrrr.devices.{home}"), name)
    globals()[name] = value
    return value
