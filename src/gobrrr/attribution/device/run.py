"""Measured steps of a GPU -> attribution, op by op in the recorded order."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.attributed import Attributed
from gobrrr.attribution.device.attribute import DeviceAttribution, attribute_device
from gobrrr.attribution.device.attributed import attributed_device
from gobrrr.attribution.device.scaling import scale_to_step
from gobrrr.attribution.recorded_work import works_of, works_of_mean_step
from gobrrr.devices.card import clock_stayed
from gobrrr.devices.ceilings import Ceilings
from gobrrr.live.measurements import Measurements
from gobrrr.live.profiles.recorded_timeline import RecordedTimeline, with_recorded
from gobrrr.roofline.residency import with_missed
from gobrrr.timeline.data import KernelKind
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall
from gobrrr.timeline.quantities import percent
from gobrrr.work import work_of
from gobrrr.work.estimate import Work

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
# Of the median profiled step.
_STALLED = 1.25


@dataclass(frozen=True, slots=True)
class OrderedOp:
    """One recorded op with its time on the device, mean ns per step.

    ``roof_ns`` and ``below_ns`` are ``None`` where the roof of a kernel of it is unknown;
    ``host_ns`` is the idle time that its kernels ended.
    """

    op: StepOp
    work: Work | None
    kernel_ns: float
    fixed_ns: float
    host_ns: float
    roof_ns: float | None
    below_ns: float | None


@dataclass(frozen=True)
class DeviceAnalysis:
    """Everything between the raw measurements and the tables, for those who compare two runs.

    ``found`` is scaled to the unprofiled step.
    """

    capture: RecordedTimeline
    works: tuple[Work | None, ...]
    found: DeviceAttribution
    attributed: Attributed

    @property
    def in_order(self) -> bool:
        """Whether ``ordered_ops`` are the step's, one by one."""
        return self.capture.in_order

    def position_of_kernels(self) -> NDArray[np.int64]:
        """The recorded op of each kernel, copy and memset (-1: none)."""
        kernels = self.capture.timeline.kernels
        op = np.where(self.found.work.op >= 0, self.found.work.op, kernels.op)
        # A graph's kernels are of no op: the call that launched it is its replay.
        op = np.where(op >= 0, op, kernels.launch)
        position = np.append(self.capture.position, -1)
        return np.asarray(position[op], np.int64)

    def ordered_ops(self) -> list[OrderedOp]:
        """Every recorded op, then what ran without being one (generated kernels), by name."""
        shares, position = self.found.attribution.kernels, self.position_of_kernels()
        recorded = self.capture.recorded
        names: dict[str, int] = {}
        timeline = self.capture.timeline
        for row in np.flatnonzero((position < 0) & (shares.owned_ns > 0)).tolist():
            name = timeline.names[timeline.kernels.name[row]]
            position[row] = len(recorded) + names.setdefault(name, len(names))
        count = len(recorded) + len(names)
        places = np.where(position < 0, count, position)

        def total(values: Float64) -> Float64:
            found = np.bincount(places, weights=values, minlength=count + 1)
            return np.asarray(found, np.float64)

        fixed, roof, below = (
            total(values) for values in (shares.fixed_ns, shares.roof_ns, shares.below_ns)
        )
        host = total(self.found.idle_before_ns)
        unknown = total(np.isnan(shares.full_roof_ns).astype(np.float64)) > 0
        ops = [*recorded, *(StepOp(OpCall(name)) for name in names)]
        works = [*self.works, *(None for _ in names)]
        return [
            OrderedOp(
                op, work, float(roof[i] + below[i]), float(fixed[i]), float(host[i]),
                None if unknown[i] else float(roof[i]), None if unknown[i] else float(below[i]),
            )
            for i, (op, work) in enumerate(zip(ops, works))
        ]  # fmt: skip


def analyse_device(measured: Measurements, ceilings: Ceilings | None) -> DeviceAnalysis:
    """Match with what was recorded, and attribute."""
    timeline = measured.device_timeline
    assert timeline is not None
    recorded = [] if measured.unrecorded else with_missed(measured.recorded or (), ceilings)
    kind = measured.kind
    capture = with_recorded(timeline, recorded, varying=kind.varying)
    unprofiled_s = [ns * 1e-9 for ns in measured.all_plain_ns]
    counts = np.array(kind.window_counts) if kind.window_counts else None
    if counts is None and not kind.varying:
        counts = _near_the_median(capture.timeline.steps, unprofiled_s)
    typical = np.mean if kind.varying else np.median
    timed_ns = float(typical(unprofiled_s)) * 1e9 if unprofiled_s else None
    found = attribute_device(
        capture.timeline, ceilings, work_of, timed_ns=timed_ns, window_counts=counts
    )
    same_clock = clock_stayed(measured.card)
    attributed = attributed_device(
        capture.timeline, found, ceilings, unprofiled_s, varying=kind.varying, same_clock=same_clock
    )
    if unprofiled_s:
        found, _ = scale_to_step(found, attributed.step.typical_s * 1e9, same_clock=same_clock)
    times = replace(
        attributed.step,
        kind=kind.name,
        what=measured.step_is,
        tokens=kind.tokens,
        fused_optimizer=measured.fused_optimizer,
        wall=kind.wall,
        taken_away=measured.taken_away,
    )
    attributed = replace(
        attributed,
        step=times,
        module_classes=measured.module_classes,
        counters={**attributed.counters, **measured.driver_call_counters},
    )
    works_of_step = works_of(capture.recorded)
    if kind.others:
        works_of_step, _, _ = works_of_mean_step(capture.recorded, works_of_step, kind)
    works = list(works_of_step)
    analysis = DeviceAnalysis(capture, tuple(works), found, attributed)
    for row, position in enumerate(analysis.position_of_kernels().tolist()):
        whole = found.work.whole[row]
        if position >= 0 and whole is not None:
            # As its kernels compute it: float32 products may run in TF32.
            mean = works[position] if kind.others else None
            works[position] = (
                whole if mean is None else replace(mean, compute_dtype=whole.compute_dtype)
            )
    return replace(analysis, works=tuple(works))


def _near_the_median(windows: Int64, unprofiled_s: list[float]) -> Float64 | None:
    """What each profiled step counts: one that stalled, as none of the timed ones did, nothing."""
    length = (windows[:, 1] - windows[:, 0]).astype(np.float64)
    if not unprofiled_s or len(length) < 3:
        return None
    timed = np.array(unprofiled_s)
    kept = length <= np.median(length) * max(_STALLED, float(timed.max() / np.median(timed)))
    return None if kept.all() else kept * (len(kept) / kept.sum())


def matching_notices(analysis: DeviceAnalysis) -> tuple[str, ...]:
    """What is to be said where modules and lines are missing."""
    capture = analysis.capture
    if not capture.recorded:
        return ()
    kernels = capture.timeline.kernels
    is_kernel = kernels.kind == KernelKind.KERNEL
    time_ns = analysis.found.attribution.kernels.owned_ns
    placed = analysis.position_of_kernels() >= 0
    whole = float(time_ns[is_kernel].sum())
    share = float(time_ns[is_kernel & placed].sum()) / whole if whole > 0 else 1.0
    if share >= 0.98:
        return ()
    return (
        f"{percent(share)} of kernel time belongs to ops that were recorded; the rest has no "
        "module and no source line (compiled code, ops that differ from step to step).",
    )
