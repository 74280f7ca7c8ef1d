"""Where a step is predicted for, by name."""

from __future__ import annotations

import os
from dataclasses import replace
from math import inf

from gobrrr.devices import load_ceilings
from gobrrr.devices.allocator import mapped_from_bytes
from gobrrr.devices.datasheet import HERE
from gobrrr.prediction.kernels.target import TargetDevice, target_device, target_of_ceilings
from gobrrr.prediction.step.host_lane import TYPICAL_HOST, HostCosts, host_costs_of
from gobrrr.timeline.errors import InputError

_OF_PROCESSOR = (
    "a host overhead is of a program beside a device: leave it out for a processor, on which it "
    "is part of the step"
)


def predicted_target(
    name: str, host_overhead: float | None = None
) -> tuple[TargetDevice, HostCosts]:
    """A device by its name, and what a host takes beside it; the processor here is measured.

    Args:
        name: of its data sheet, or ``HERE``.
        host_overhead: the program's host time over the one assumed; ``None``: not known.

    Raises:
        InputError: the device is not known, or is a processor, whose host time is the step's own;
            an overhead that is not above 0.
    """
    if host_overhead is not None and not 0 < host_overhead < inf:
        raise InputError(
            "the host overhead is how many times the assumed host time a program takes: above 0, "
            f"not {host_overhead:g}"
        )
    if name != HERE:
        device = target_device(name)
        if host_overhead is None:
            return device, TYPICAL_HOST
        if device.kind == "cpu":
            raise InputError(_OF_PROCESSOR)
        return device, TYPICAL_HOST.with_overhead(host_overhead)
    if host_overhead is not None:
        raise InputError(_OF_PROCESSOR)
    ceilings = load_ceilings(refresh=False, progress=lambda *_: None)
    here = replace(
        target_of_ceilings(ceilings, "cpu"), mapped_from_bytes=mapped_from_bytes(os.environ)
    )
    return here, host_costs_of(ceilings)
