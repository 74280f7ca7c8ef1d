"""A recorded timeline with every kernel's time on another device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gobrrr.attribution.device.work import DeviceWork, work_of_kernels
from gobrrr.attribution.kernel_names import family_of
from gobrrr.attribution.leaves import COMPUTE_UNMODELLED, MEMORY_UNMODELLED, REGIME_NAMES
from gobrrr.devices.ceilings import Ceilings
from gobrrr.devices.datasheet import HERE, find_datasheet
from gobrrr.diagnosis.tables import describe_shapes
from gobrrr.prediction.carried.retime import retime
from gobrrr.prediction.kernels.carrying import carry_kernel, carry_unknown, work_on
from gobrrr.prediction.kernels.flags import flags_of_kernels
from gobrrr.prediction.kernels.target import (
    TargetDevice,
    target_device,
    target_of_ceilings,
    target_of_sheet,
)
from gobrrr.prediction.step.costs import computed_in_float32
from gobrrr.roofline.roof import Roof
from gobrrr.timeline.data import Device, KernelKind, Timeline
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.nesting import parents
from gobrrr.timeline.ops import OpCall
from gobrrr.timeline.quantities import percent, time_text
from gobrrr.work import work_of
from gobrrr.work.estimate import Work

# Ops that a notice about changed regimes names.
_NAMED_CHANGES = 3


@dataclass(frozen=True)
class CarriedOp:
    """One op with one set of shapes, on both devices; times are sums over a step, in seconds.

    ``regime_before``, ``regime_after``: ``compute`` or ``memory`` by its roof, ``unmodelled``
    where there is none.
    """

    name: str
    shapes: str
    count: float
    before_s: float
    after_s: float
    regime_before: str
    regime_after: str


@dataclass(frozen=True)
class Carried:
    """A timeline on another device.

    ``timeline``: with the kernels' new times. ``before_ns``, ``after_ns``: of every kernel, in
    the order of the source's timeline.
    """

    timeline: Timeline
    before_ns: np.ndarray[Any, np.dtype[np.float64]]
    after_ns: np.ndarray[Any, np.dtype[np.float64]]
    work: DeviceWork
    target_roofs: tuple[Roof | None, ...]
    notices: tuple[str, ...]


def gpu_target(device: str | TargetDevice) -> TargetDevice:
    """The device to carry to: one with kernels of its own, as those of the trace are."""
    if device == HERE:
        raise InputError(
            "a trace's kernels cannot be predicted for this CPU: predict FILE.py:FUNCTION for it, "
            "or name a GPU that gobrrr devices lists"
        )
    target = target_device(device) if isinstance(device, str) else device
    if target.kind == "cpu":
        raise InputError(
            f"a trace's kernels cannot be predicted for a CPU ({target.key}): name a GPU that "
            "gobrrr devices lists"
        )
    return target


def change_notices(
    changed: Sequence[CarriedOp], carried: Carried, source: TargetDevice, target: TargetDevice
) -> list[str]:
    """One sentence for each regime that ops change to, with their share of the kernel time."""
    total_s = float(carried.after_ns.sum()) * 1e-9 / max(len(carried.timeline.steps), 1)
    found = []
    for regime in dict.fromkeys(row.regime_after for row in changed):
        rows = [row for row in changed if row.regime_after == regime]
        share = sum(row.after_s for row in rows) / total_s if total_s else 0.0
        if regime == "unmodelled":
            lead = f"No ceiling on {target.key} for the dtype"
        else:
            lead = f"{regime.capitalize()}-bound on {target.key}"
        named = ", ".join(f"{row.name} {row.shapes}" for row in rows[:_NAMED_CHANGES])
        if len(rows) > _NAMED_CHANGES:
            named += f" and {len(rows) - _NAMED_CHANGES} more"
        found.append(
            f"{lead}, {rows[0].regime_before}-bound on {source.key}: {named} "
            f"({percent(share)} of the kernel time)."
        )
    return found


def source_device(timeline: Timeline, name: str, ceilings: Ceilings | None) -> TargetDevice:
    """The device that a trace was recorded on.

    Raises:
        InputError: the trace does not name it, or it has no data sheet and no ceilings were given.
    """
    if ceilings is not None:
        return target_of_ceilings(ceilings, timeline.device.kind)
    sheet = find_datasheet(timeline.device.name) if timeline.device.name else None
    if sheet is None:
        which = timeline.device.name or "a device that the trace does not name"
        raise InputError(
            f"{name} was recorded on {which}, which has no data sheet: measure its ceilings there "
            "with `gobrrr ceilings --json FILE` and give them with --ceilings FILE"
        )
    return target_of_sheet(sheet)


def carry_timeline(
    timeline: Timeline, name: str, source: TargetDevice, target: TargetDevice
) -> Carried:
    """The timeline with every kernel's time on ``target``.

    Raises:
        InputError: there is no device work, or no operator has shapes.
    """
    kernels = timeline.kernels
    if len(kernels) == 0:
        raise InputError(f"{name} holds no GPU work to predict for {target.key}")
    parent = parents(timeline.host.start_ns, timeline.host.end_ns, timeline.host.thread)
    work = work_of_kernels(timeline, source.ceilings, work_of, parent)
    if not any(found is not None for found in work.whole):
        raise InputError(
            f"{name} has no operator shapes, so how its kernels depend on the device is unknown: "
            "record it with record_shapes=True"
        )
    before = np.maximum(kernels.end_ns - kernels.start_ns, 0).astype(np.float64)
    after = before.copy()
    roofs: list[Roof | None] = [None] * len(kernels)
    unchanged = copied = collected = 0.0
    for row in range(len(kernels)):
        kind = int(kernels.kind[row])
        if kind == KernelKind.COLLECTIVE:
            collected += before[row]
            continue
        if kind == KernelKind.COPY:
            copied += before[row]
            continue
        found = _one(timeline, work, row, float(before[row]) * 1e-9, source, target, roofs)
        if found is None:
            unchanged += before[row]
        else:
            after[row] = found * 1e9
    wide = {
        whole.compute_dtype
        for whole in work.whole
        if whole is not None and work_on(whole, target) is not whole
    }
    notices = [computed_in_float32(dtype, target.key) for dtype in sorted(wide)]
    notices += [
        f"{time_text(share * 1e-9)} of {what} keep their measured time: {why}."
        for share, what, why in (
            (collected, "collectives", "they depend on the network between devices"),
            (copied, "copies", "they depend on the host's link"),
            (unchanged, "kernels", "neither shapes nor name say what bounds them"),
        )
        if share > 0
    ]
    moved = replace(
        retime(timeline, after),
        device=Device(
            target.name, target.kind, timeline.device.index, target.memory_bytes,
            target.multiprocessors,
        ),
    )  # fmt: skip
    return Carried(moved, before, after, work, tuple(roofs), tuple(notices))


def _one(
    timeline: Timeline, work: DeviceWork, row: int, measured_s: float, source: TargetDevice,
    target: TargetDevice, roofs: list[Roof | None],
) -> float | None:  # fmt: skip
    """Seconds of one kernel on the target; ``None`` where no rule is known."""
    whole, call = work.whole[row], int(work.call[row])
    name = timeline.names[timeline.kernels.name[row]]
    if whole is not None and call >= 0:
        carried = carry_kernel(
            measured_s,
            timeline.calls[call],
            whole,
            float(work.share[row]),
            source,
            target,
            flags_of_kernels((name,)),
        )
        if carried is not None:
            roofs[row] = carried.target_roof
            return carried.seconds
    if int(timeline.kernels.kind[row]) == KernelKind.MEMSET:
        return carry_unknown(measured_s, "memory", source, target)
    regime = family_of(name).regime
    bound = {MEMORY_UNMODELLED: "memory", COMPUTE_UNMODELLED: "compute"}.get(regime, "")
    return carry_unknown(measured_s, bound, source, target)


def carried_ops(timeline: Timeline, carried: Carried) -> list[CarriedOp]:
    """Ops by name and shapes with their time on both devices, the most time after first."""
    steps = max(len(timeline.steps), 1)
    rows: dict[Any, list[float]] = {}
    facts: dict[Any, tuple[str, str, str, str]] = {}
    counted: set[tuple[Any, int]] = set()
    kernels = timeline.kernels
    for row in range(len(kernels)):
        if int(kernels.kind[row]) != KernelKind.KERNEL:
            continue
        index, op = int(carried.work.call[row]), int(carried.work.op[row])
        if index >= 0:
            call = timeline.calls[index]
            key: Any = (call.name, call.args)
            name, shapes = call.name, describe_shapes(call)
        else:
            name, shapes = timeline.names[kernels.name[row]], ""
            key = name
        total = rows.setdefault(key, [0.0, 0.0, 0.0])
        total[0] += carried.before_ns[row] * 1e-9 / steps
        total[1] += carried.after_ns[row] * 1e-9 / steps
        if (key, op) not in counted or op < 0:
            counted.add((key, op))
            total[2] += 1 / steps
        facts.setdefault(
            key,
            (name, shapes, _regime(carried.work.roofs[row]), _regime(carried.target_roofs[row])),
        )
    found = [
        CarriedOp(*facts[key][:2], total[2], total[0], total[1], *facts[key][2:])
        for key, total in rows.items()
    ]
    return sorted(found, key=lambda row: -row.after_s)


def work_there(call: OpCall, target: TargetDevice) -> Work | None:
    """The work of an op as the device has it done."""
    work = work_of(call)
    return None if work is None else work_on(work, target)


def _regime(roof: Roof | None) -> str:
    return "unmodelled" if roof is None else REGIME_NAMES[roof.regime]


def ridge_point(device: TargetDevice) -> float | None:
    """FLOPs per byte at which bfloat16 products and the memory take the same time."""
    rate = device.ceilings.matrix_flops_per_s("bfloat16")
    if rate is None or not device.ceilings.levels:
        return None
    return rate / device.ceilings.levels[-1].bandwidth_bytes_per_s(0.0)
