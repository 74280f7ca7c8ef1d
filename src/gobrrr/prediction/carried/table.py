"""One recorded step on several devices: which regime its time belongs to on each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gobrrr.devices.ceilings import Ceilings
from gobrrr.prediction.carried.carry import (
    carried_ops,
    carry_timeline,
    gpu_target,
    ridge_point,
    source_device,
)
from gobrrr.recordings.traces import read_trace

PathLike = str | os.PathLike[str]

# The devices that a table of carried regimes is about, oldest first.
COMPARED = ("A100-SXM-80GB", "H100-SXM", "H200-SXM", "B200", "MI300X")


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
        rows.append(
            DeviceRow(
                device=target.key,
                step_s=float(carried.timeline.step_lengths_ns.mean()) * 1e-9,
                busy_s=float(carried.after_ns.sum()) * 1e-9 / max(len(carried.timeline.steps), 1),
                ridge_flops_per_byte=ridge_point(target),
                regimes=regimes,
            )
        )
    return rows
