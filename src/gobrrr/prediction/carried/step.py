"""A recorded step carried to another device, attributed as a recorded one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gobrrr.attribution.attributed import Attributed
from gobrrr.attribution.device.attribute import attribute_device
from gobrrr.attribution.device.attributed import attributed_device
from gobrrr.prediction.carried.carry import (
    carried_ops,
    carry_timeline,
    change_notices,
    work_there,
)
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.timeline.data import Timeline
from gobrrr.timeline.quantities import time_text

# What the device waits for the host to do.
_HOST_LEAVES = (
    "overhead.python", "overhead.dispatch", "overhead.allocation", "overhead.data_loading",
    "overhead.garbage_collection",
)  # fmt: skip


def carried_step(
    timeline: Timeline, name: str, source: TargetDevice, target: TargetDevice
) -> tuple[Attributed, dict[str, Any]]:
    """The step as it will run on ``target``, and what its diagnosis's source says of it.

    Raises:
        InputError: there is no device work, or no operator has shapes.
    """
    carried = carry_timeline(timeline, name, source, target)
    changed = [
        row for row in carried_ops(timeline, carried) if row.regime_before != row.regime_after
    ]
    known_as: dict[str, Any] = {
        "kind": "prediction",
        "name": f"{name} on {target.key}",
        "from": "trace",
        "measured_on": source.key,
        "measured_step_s": float(timeline.step_lengths_ns.mean()) * 1e-9,
        "regime_changes": [
            {"op": row.name, "shapes": row.shapes, "before": row.regime_before,
             "after": row.regime_after, "time_s": row.after_s}
            for row in changed
        ],
    }  # fmt: skip
    notices = (*carried.notices, *change_notices(changed, carried, source, target))
    moved = replace(
        carried.timeline, notices=(*carried.timeline.notices, *notices, *target.notices)
    )
    # All that is to be said of the target is in its own notices.
    ceilings_there = replace(target.ceilings, notices=())
    found = attribute_device(moved, ceilings_there, lambda call: work_there(call, target))
    step = attributed_device(moved, found, ceilings_there)
    host_s = sum(step.leaves_ns[leaf] for leaf in _HOST_LEAVES) * 1e-9
    of_host = (
        "Host times are those of the trace, the profiler's cost included: Python, dispatch and "
        f"data loading are not scaled. The device waits for them {time_text(host_s)} per step."
    )
    return replace(step, notices=(of_host, *step.notices)), known_as
