"""Where a device's step time goes: every instant to one kernel or one cause of idleness."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.device.idle import (
    CAUSE_LEAVES,
    IdlePieces,
    behind_queued_ns,
    find_idle,
    summarise_idle,
)
from gobrrr.attribution.device.profiler_cost import CostOfRecording
from gobrrr.attribution.device.time import DeviceTimeNs, device_time
from gobrrr.attribution.device.work import DeviceWork, WorkOf, moves_own_bytes, work_of_kernels
from gobrrr.attribution.kernel_names import family_of, regime_without_roof
from gobrrr.attribution.leaves import (
    BELOW_LEAF,
    COLLECTIVE,
    COMPUTE_MATRIX,
    COMPUTE_UNMODELLED,
    COMPUTE_VECTOR,
    COPY,
    LEAVES,
    MEMORY,
    MEMORY_UNMODELLED,
    ROOF_LEAF,
    UNMODELLED,
    Attribution,
)
from gobrrr.attribution.split import split_kernels
from gobrrr.devices.ceilings import Ceilings
from gobrrr.timeline import intervals
from gobrrr.timeline.data import KernelKind, Timeline
from gobrrr.timeline.quantities import percent

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
UInt8 = NDArray[np.uint8]

# Who owns an instant that several run in: the lower number. Work at a ceiling hides what runs
# beside it, so that communication and copies count only where they are exposed.
_PRECEDENCE = np.zeros(8, np.int64)
_PRECEDENCE[[COMPUTE_MATRIX, COMPUTE_VECTOR]] = 0
_PRECEDENCE[MEMORY] = 1
_PRECEDENCE[[COMPUTE_UNMODELLED, MEMORY_UNMODELLED, UNMODELLED]] = 2
_PRECEDENCE[COLLECTIVE] = 3
_PRECEDENCE[COPY] = 4
_INDEX = {leaf: index for index, leaf in enumerate(LEAVES)}
_FIXED_LEAF = _INDEX["overhead.kernel_fixed_cost"]
# Of the recorded steps, from where on something is said.
_SAID_GAPS = 0.01
_SAID_RECORDING = 0.1


@dataclass(frozen=True)
class DeviceAttribution:
    """An ``Attribution`` of a device timeline with what tables and drawings need beside it.

    Rows of ``work`` are those of ``Timeline.kernels``. ``idle`` are the pieces
    of idle time on the trace's clock; ``idle_before_ns[k]`` is the idle time, mean per step, that
    kernel k ended. ``owned`` are the disjoint stretches that kernels own. ``unlinked_ns`` is
    kernel time, mean per step, for which no operator was found. ``profiler_ns`` is what a step was
    shortened by, because it was the profiler's. ``counts`` is how often each kernel stands in the
    mean (1 on average; ``None``: all alike).
    """

    attribution: Attribution
    device_time: DeviceTimeNs
    work: DeviceWork
    owned: intervals.Pieces
    idle: IdlePieces
    idle_before_ns: Float64
    unlinked_ns: float
    profiler_ns: float = 0.0
    counts: Float64 | None = None


def attribute_device(
    timeline: Timeline,
    ceilings: Ceilings | None,
    work_of: WorkOf,
    fixed_ns: Float64 | None = None,
    timed_ns: float | None = None,
    window_counts: Float64 | None = None,
) -> DeviceAttribution:
    """Attributes every window of the timeline; leaves are means over the windows.

    Kernels, and copies within the device's memory, split as ``split_kernels`` says, with the
    device's fixed cost. Copies from and to it, memsets that prepare a kernel, and collectives go
    whole to ``memory.copies`` and ``memory.network``.

    Args:
        timeline: of one device, with its step windows.
        ceilings: of the device; ``None`` leaves every kernel without a roof.
        work_of: formula of an operator call, ``None`` where there is none.
        fixed_ns: of each kernel, where more is known of it than the device's fixed cost.
        timed_ns: a step without the profiler, where it was timed (a live run): what recording cost
            the host is solved from it. The leaves of the step keep the length of the profiled one.
        window_counts: how much each window counts in the means, 1 on average; ``None``: all alike.

    Raises:
        ValueError: the timeline has no device work.
    """
    kernels = timeline.kernels
    figures = device_time(timeline)
    if figures is None:
        raise ValueError("a timeline without device work")
    parent = timeline.host.parent
    work = work_of_kernels(timeline, ceilings, work_of, parent)
    regime = _regimes(timeline, work)
    duration = np.maximum(kernels.end_ns - kernels.start_ns, 0)
    rows = np.arange(len(kernels), dtype=np.int64)
    whole = duration.astype(np.float64)
    known_s = None if ceilings is None else ceilings.kernel_fixed_s
    fixed = (known_s or 0.0) * 1e9 if fixed_ns is None else fixed_ns
    split = split_kernels(rows, whole, regime, work.roof_ns, fixed_ns=fixed)

    windows = timeline.steps
    steps = len(windows)
    owned = intervals.ownership(kernels.start_ns, kernels.end_ns, _PRECEDENCE[regime])
    pieces, window = intervals.clip_to_windows(owned.start, owned.end, windows)
    row = owned.row[pieces.row]
    length = (pieces.end - pieces.start).astype(np.float64)
    per_window = np.zeros((steps, len(LEAVES)))
    part = length / np.maximum(duration[row], 1)
    for amount, leaf in (
        (split.fixed_ns, np.full(len(row), _FIXED_LEAF)),
        (split.roof_ns, _leaf_table(ROOF_LEAF)[regime[row]]),
        (split.below_ns, _leaf_table(BELOW_LEAF)[regime[row]]),
    ):
        np.add.at(per_window, (window, leaf), amount[row] * part)

    busy = intervals.union(kernels.start_ns, kernels.end_ns)
    idle = find_idle(timeline, busy, parent)
    idle_pieces, idle_window = intervals.clip_to_windows(idle.start_ns, idle.end_ns, windows)
    causes = _leaf_table(CAUSE_LEAVES)[idle.cause[idle_pieces.row]]
    within = (idle_pieces.end - idle_pieces.start).astype(np.float64)
    lengths: Float64 = (windows[:, 1] - windows[:, 0]).astype(np.float64)
    counted_windows = np.ones(steps) if window_counts is None else window_counts
    weights = np.bincount(
        idle_pieces.row, within * counted_windows[idle_window] / steps, len(idle)
    ) / np.maximum(idle.end_ns - idle.start_ns, 1)
    profiled_ns = float((lengths * counted_windows).mean())
    recording = CostOfRecording(timeline, idle)
    notices = _on_gaps(behind_queued_ns(timeline, idle) / max(float(lengths.sum()), 1.0))
    if timed_ns is None:
        kept = np.ones(len(idle))
        notices += _on_recording(recording.taken_ns(1.0, weights) / max(profiled_ns, 1.0))
    else:
        kept = recording.kept_of_step(weights, profiled_ns, timed_ns)
    np.add.at(per_window, (idle_window, causes), within * kept[idle_pieces.row])
    spent = within * (1.0 - kept[idle_pieces.row])
    owned_ns = np.bincount(row, weights=length, minlength=len(kernels)) / steps
    # Everything is a mean per step, so that rows of one operator add up to its time in a step.
    shares = split_kernels(
        rows, whole, regime, work.roof_ns, fixed_ns=fixed,
        owned=owned_ns * steps / np.maximum(duration, 1),
    ).scaled(1.0 / steps, roofs=1.0 / steps)  # fmt: skip
    means: Float64 = per_window
    counts: Float64 | None = None
    if window_counts is not None:
        means, lengths = per_window * window_counts[:, None], lengths * window_counts
        spent = spent * window_counts[idle_window]
        kept = kept * window_counts[window_of(idle.start_ns, windows)]
        counts = window_counts[window_of(kernels.start_ns, windows)]
        weighted = np.bincount(row, weights=length * window_counts[window], minlength=len(kernels))
        # A kernel that runs into the next window counts as its parts do.
        np.divide(weighted, owned_ns * steps, out=counts, where=owned_ns > 0)
        owned_ns, shares = owned_ns * counts, shares.scaled(counts, roofs=counts)
    spent_ns = float(spent.sum()) / steps
    # A kernel that only ends the last window is of no step, nor is one between two of them.
    until = np.searchsorted(windows[:, 1], kernels.start_ns, side="right")
    begin = windows[np.minimum(until, steps - 1), 0]
    counted = (until < steps) & (begin < kernels.end_ns)
    shares = replace(
        shares,
        duration_ns=shares.duration_ns * counted,
        full_roof_ns=shares.full_roof_ns * counted,
    )
    mean = means.mean(axis=0)
    attribution = Attribution(
        step_ns=float(lengths.mean()) - spent_ns,
        leaves_ns=dict(zip(LEAVES, mean.tolist())),
        kernels=shares,
        works=work.works,
        idle=summarise_idle(timeline, idle, steps, parent, kept),
        windows=tuple(dict(zip(LEAVES, leaves)) for leaves in per_window.tolist()),
        notices=notices,
        above_ceiling=tuple(np.flatnonzero(work.roof_ns + split.fixed_ns > duration).tolist()),
    )
    attribution.check()
    unlinked = (kernels.kind == KernelKind.KERNEL) & (kernels.op < 0)
    ended = idle.kernel >= 0
    before = np.bincount(
        idle.kernel[ended],
        weights=((idle.end_ns - idle.start_ns) * kept)[ended].astype(np.float64),
        minlength=len(kernels),
    )
    return DeviceAttribution(
        attribution, figures, work, owned, idle, before / steps,
        float(owned_ns[unlinked].sum()), spent_ns, counts,
    )  # fmt: skip


def _on_gaps(share: float) -> tuple[str, ...]:
    """That kernels which were queued began late, which a device does not do."""
    if share < _SAID_GAPS:
        return ()
    return (
        f"For {percent(share, 1)} of the recorded steps the device is idle although its next "
        "kernel was queued long before: records of kernels are missing or have wrong times, or "
        "it waited for another device or process.",
    )


def _on_recording(share: float) -> tuple[str, ...]:
    """That a recording has the profiler's cost in it, where that is supposed to be much."""
    if share < _SAID_RECORDING:
        return ()
    return (
        f"Recording takes time of the host, and no trace tells how much: at what it took on an "
        f"H200's host, {percent(share)} of this step is the profiler's. A live run (gobrrr run) "
        "times steps without it.",
    )


def window_of(start_ns: Int64, windows: Int64) -> Int64:
    """The window that something begins in; the first or the last one of what is outside."""
    found = np.searchsorted(windows[:, 0], start_ns, side="right") - 1
    return np.clip(found, 0, len(windows) - 1)


def _leaf_table(leaves: tuple[str, ...]) -> Int64:
    return np.array([_INDEX[leaf] for leaf in leaves], np.int64)


def _regimes(timeline: Timeline, work: DeviceWork) -> UInt8:
    kind, names = timeline.kernels.kind, timeline.names
    regime = np.array([-1 if roof is None else roof.regime for roof in work.roofs], np.int8)
    own = moves_own_bytes(timeline)
    rows = np.flatnonzero((regime < 0) & own)
    # Kernels of one call share the object that is their work.
    known: dict[tuple[int, int], int] = {}
    for row, name in zip(rows.tolist(), timeline.kernels.name[rows].tolist()):
        key = id(work.works[row]), name
        if key not in known:
            known[key] = regime_without_roof(work.works[row], family_of(names[name]))
        regime[row] = known[key]
    regime[kind == KernelKind.COLLECTIVE] = COLLECTIVE
    regime[(kind != KernelKind.COLLECTIVE) & ~own] = COPY
    return regime.astype(np.uint8)
