"""A measured trace carried to another device: what this very step would take there."""

from __future__ import annotations

import os
from pathlib import Path

from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.assemble import assemble
from gobrrr.diagnosis.environment import recorded_environment
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.prediction.carried.carry import gpu_target, source_device
from gobrrr.prediction.carried.step import carried_step
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.recordings.traces import read_trace

PathLike = str | os.PathLike[str]


def carry_trace(
    path: PathLike, device: str | TargetDevice, *, ceilings: Ceilings | None = None
) -> Diagnosis:
    """Diagnose a recorded step as it would run on ``device``.

    Each kernel's measured time is scaled by what the device can do more or less of (see
    ``gobrrr.prediction.kernels.carrying``); the host keeps its own times, and waits where it
    waited. The diagnosis's ``source`` is of kind ``prediction``; ``findings`` and
    ``batch_doubling`` are not made.

    Args:
        path: a trace of PyTorch's profiler, recorded with shapes on a GPU.
        device: name of a data-sheet row, or a target.
        ceilings: of the device that the trace was recorded on; by default its data sheet's.

    Raises:
        InputError: the file is no such trace, holds no shapes, either device is unknown, or
            ``device`` is a processor.
    """
    name = Path(path).name
    target = gpu_target(device)
    timeline = read_trace(Path(path))
    source = source_device(timeline, name, ceilings)
    step, known_as = carried_step(timeline, name, source, target)
    return assemble(step, source=known_as, environment=recorded_environment(timeline))
