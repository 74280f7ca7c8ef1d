"""Where a step is predicted for, by name."""

from __future__ import annotations

import os
from dataclasses import replace

from gobrrr.devices import load_ceilings
from gobrrr.devices.allocator import mapped_from_bytes
from gobrrr.models.host_lane import TYPICAL_HOST, HostCosts, host_costs_of
from gobrrr.models.target import HERE, TargetDevice, target_device, target_of_ceilings


def predicted_target(name: str) -> tuple[TargetDevice, HostCosts]:
    """A device by its name, and what a host takes beside it; the processor here is measured.

    Raises InputError for a device that is not known.
    """
    if name != HERE:
        return target_device(name), TYPICAL_HOST
    ceilings = load_ceilings(refresh=False, progress=lambda *_: None)
    here = replace(
        target_of_ceilings(ceilings, "cpu"), mapped_from_bytes=mapped_from_bytes(os.environ)
    )
    return here, host_costs_of(ceilings)
