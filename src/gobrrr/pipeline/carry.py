"""A measured trace carried to another device: what this very step would take there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gobrrr.attribution.device import attribute_device
from gobrrr.attribution.device_attributed import attributed_device
from gobrrr.capture.traces import read_trace
from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.assemble import assemble
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.models.target import TargetDevice
from gobrrr.pipeline.environment import package_version
from gobrrr.prediction.carry import (
    carried_ops,
    carry_timeline,
    change_notices,
    gpu_target,
    ridge_point,
    source_device,
    work_there,
)
from gobrrr.timeline.quantities import time_text

PathLike = str | os.PathLike[str]

# What the device waits for the host to do.
_HOST_LEAVES = (
    "overhead.python", "overhead.dispatch", "overhead.allocation", "overhead.data_loading",
    "overhead.garbage_collection",
)  # fmt: skip
# The devices that a table of carried regimes is about, oldest first.
COMPARED = ("A100-SXM-80GB", "H100-SXM", "H200-SXM", "B200", "MI300X")


def carry_trace(
    path: PathLike, device: str | TargetDevice, *, ceilings: Ceilings | None = None
) -> Diagnosis:
    """Diagnose a recorded step as it would run on ``device``.

    Each kernel's measured time is scaled by what the device can do more or less of (see
    ``gobrrr.models.carrying``); the host keeps its own times, and waits where it waited. The
    diagnosis's ``source`` is of kind ``prediction``; ``findings`` and ``batch_doubling`` are not
    made.

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
    carried = carry_timeline(timeline, name, source, target)
    changed = [
        row for row in carried_ops(timeline, carried) if row.regime_before != row.regime_after
    ]
    known_as: dict[str, Any] = {
        "kind": "prediction",
        "name": f"{name} on {target.key}",
        "from": "trace",
        "measured_on": source.key,
        "measured_step_s": float((timeline.steps[:, 1] - timeline.steps[:, 0]).mean()) * 1e-9,
        "regime_changes": [
            {"op": row.name, "shapes": row.shapes, "before": row.regime_before,
             "after": row.regime_after, "time_s": row.after_s}
            for row in changed
        ],
    }  # fmt: skip
    environment = {"gobrrr": package_version("gobrrr"), "torch": timeline.torch_version or None}
    notices = (*carried.notices, *change_notices(changed, carried, source, target))
    moved = replace(
        carried.timeline, notices=(*carried.timeline.notices, *notices, *target.notices)
    )
    # All that is to be said of the target is in its own notices.
    ceilings_there = replace(target.ceilings, notices=())
    found = attribute_device(moved, ceilings_there, lambda call: work_there(call, target))
    step = attributed_device(moved, found, ceilings_there)
    diagnosis = assemble(step, source=known_as, environment=environment)
    host_s = sum(diagnosis.leaves[name] for name in _HOST_LEAVES)
    diagnosis.notices.insert(
        0,
        "The host is that of the trace, profiler and all: its Python, dispatch and loading keep "
        f"their times; the device waits for them {time_text(host_s)} of each step.",
    )
    return diagnosis


@dataclass(frozen=True)
class DeviceRow:
    """One device of the comparison: the step there, and its ridge point.

    ``ridge_flops_per_byte``: bfloat16 matrix FLOP/s over memory bytes/s, the intensity above which
    an op is compute-bound; ``None`` without such a rate. ``regimes``: op time by regime of the
    roof.
    """

    device: str
    step_s: float
    busy_s: float
    ridge_flops_per_byte: float | None
    regimes: dict[str, float]


def carried_table(
    path: PathLike, devices: Sequence[str] = COMPARED, *, ceilings: Ceilings | None = None
) -> list[DeviceRow]:
    """The same step on several devices: which regime its time belongs to on each.

    Raises:
        InputError: as ``carry_trace``.
    """
    name = Path(path).name
    timeline = read_trace(Path(path))
    source = source_device(timeline, name, ceilings)
    rows = []
    for key in devices:
        target = gpu_target(key)
        carried = carry_timeline(timeline, name, source, target)
        regimes: dict[str, float] = {}
        for op in carried_ops(timeline, carried):
            regimes[op.regime_after] = regimes.get(op.regime_after, 0.0) + op.after_s
        steps = carried.timeline.steps
        rows.append(
            DeviceRow(
                device=target.key,
                step_s=float((steps[:, 1] - steps[:, 0]).mean()) * 1e-9,
                busy_s=float(carried.after_ns.sum()) * 1e-9 / max(len(steps), 1),
                ridge_flops_per_byte=ridge_point(target),
                regimes=regimes,
            )
        )
    return rows
