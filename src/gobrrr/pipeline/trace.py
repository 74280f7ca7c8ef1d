"""Diagnose recorded traces: the same object as a live run, without torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gobrrr.capture.trace import read_trace
from gobrrr.devices import ceilings_from_datasheet
from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.pipeline.device_build import build_device_diagnosis
from gobrrr.pipeline.environment import package_version
from gobrrr.timeline.data import Timeline
from gobrrr.timeline.errors import InputError

PathLike = str | os.PathLike[str]


def diagnose_trace(
    paths: PathLike | Sequence[PathLike], *, ceilings: Ceilings | None = None
) -> Diagnosis:
    """Diagnose one trace of PyTorch's profiler.

    ``ceilings``: of the device that the trace was recorded on; by default its data sheet's, found
    by the name in the trace. Without either there is no roofline, and a notice says so.

    Raises InputError for a file that holds no device work that can be diagnosed.
    """
    names = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if len(names) != 1:
        raise InputError("give one trace")
    path = Path(names[0])
    return diagnose_timeline(read_trace(path), path.name, ceilings)


def diagnose_timeline(timeline: Timeline, name: str, ceilings: Ceilings | None) -> Diagnosis:
    """Diagnose a timeline that was read from the file ``name``."""
    if len(timeline.kernels) == 0:
        raise InputError(
            f"{name} holds no GPU work. Record it with ProfilerActivity.CUDA, or diagnose the "
            "program itself: gobrrr run SCRIPT"
        )
    if ceilings is None and timeline.device.name:
        ceilings = ceilings_from_datasheet(timeline.device.name)
    source: dict[str, Any] = {"kind": "trace", "name": name}
    if timeline.rank is not None:
        source["rank"], source["world_size"] = timeline.rank, timeline.world_size
    environment = {"gobrrr": package_version("gobrrr"), "torch": timeline.torch_version or None}
    diagnosis, _ = build_device_diagnosis(timeline, ceilings, source, environment)
    return diagnosis
