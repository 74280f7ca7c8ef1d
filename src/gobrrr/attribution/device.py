"""Where a device's step time goes: every instant to one kernel or one cause of idleness."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.device_time import DeviceTimeNs, device_time
from gobrrr.attribution.device_work import DeviceWork, WorkOf, work_of_kernels
from gobrrr.attribution.idle import CAUSE_LEAVES, IdlePieces, find_idle, summarise_idle
from gobrrr.attribution.kernel_names import Family, family_of, regime_without_roof
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
from gobrrr.timeline.intervals import distinct
from gobrrr.timeline.nesting import parents

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


@dataclass(frozen=True)
class DeviceAttribution:
    """An ``Attribution`` of a device timeline with what tables and drawings need beside it.

    Rows of ``work`` and ``families`` are those of ``Timeline.kernels``. ``idle`` are the pieces
    of idle time on the trace's clock; ``idle_before_ns[k]`` is the idle time, mean per step, that
    kernel k ended. ``owned`` are the disjoint stretches that kernels own. ``unlinked_ns`` is
    kernel time, mean per step, for which no operator was found.
    """

    attribution: Attribution
    device_time: DeviceTimeNs
    work: DeviceWork
    families: tuple[Family, ...]
    owned: intervals.Pieces
    idle: IdlePieces
    idle_before_ns: Float64
    unlinked_ns: float


def attribute_device(
    timeline: Timeline,
    ceilings: Ceilings | None,
    work_of: WorkOf,
    fixed_ns: Float64 | None = None,
) -> DeviceAttribution:
    """Attributes every window of the timeline; leaves are means over the windows.

    Kernels split as ``split_kernels`` says, with the device's fixed cost. Copies, memsets and
    collectives go whole to ``memory.copies`` and ``memory.network``.

    Args:
        timeline: of one device, with its step windows.
        ceilings: of the device; ``None`` leaves every kernel without a roof.
        work_of: formula of an operator call, ``None`` where there is none.
        fixed_ns: of each kernel, where more is known of it than the device's fixed cost.

    Raises:
        ValueError: the timeline has no device work.
    """
    kernels = timeline.kernels
    figures = device_time(timeline)
    if figures is None:
        raise ValueError("a timeline without device work")
    parent = parents(timeline.host.start_ns, timeline.host.end_ns, timeline.host.thread)
    work = work_of_kernels(timeline, ceilings, work_of, parent)
    families = _families(timeline)
    regime = _regimes(timeline, work, families)
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
    np.add.at(
        per_window, (idle_window, causes), (idle_pieces.end - idle_pieces.start).astype(np.float64)
    )

    owned_ns = np.bincount(row, weights=length, minlength=len(kernels)) / steps
    # Everything is a mean per step, so that rows of one operator add up to its time in a step.
    shares = split_kernels(
        rows, whole, regime, work.roof_ns, fixed_ns=fixed,
        owned=owned_ns * steps / np.maximum(duration, 1),
    ).scaled(1.0 / steps, roofs=1.0 / steps)  # fmt: skip
    mean = per_window.mean(axis=0)
    attribution = Attribution(
        step_ns=float((windows[:, 1] - windows[:, 0]).mean()),
        leaves_ns=dict(zip(LEAVES, mean.tolist())),
        kernels=shares,
        works=work.works,
        idle=summarise_idle(timeline, idle, steps, parent),
        windows=tuple(dict(zip(LEAVES, leaves)) for leaves in per_window.tolist()),
        above_ceiling=tuple(np.flatnonzero(work.roof_ns + split.fixed_ns > duration).tolist()),
    )
    attribution.check()
    unlinked = (kernels.kind == KernelKind.KERNEL) & (kernels.op < 0)
    ended = idle.kernel >= 0
    before = np.bincount(
        idle.kernel[ended],
        weights=(idle.end_ns - idle.start_ns)[ended].astype(np.float64),
        minlength=len(kernels),
    )
    return DeviceAttribution(
        attribution, figures, work, families, owned, idle, before / steps,
        float(owned_ns[unlinked].sum()),
    )  # fmt: skip


def _leaf_table(leaves: tuple[str, ...]) -> Int64:
    return np.array([_INDEX[leaf] for leaf in leaves], np.int64)


def _families(timeline: Timeline) -> tuple[Family, ...]:
    name = timeline.kernels.name
    known = {number: family_of(timeline.names[number]) for number in distinct(name).tolist()}
    return tuple(map(known.__getitem__, name.tolist()))


def _regimes(timeline: Timeline, work: DeviceWork, families: tuple[Family, ...]) -> UInt8:
    kind = timeline.kernels.kind
    regime = np.array(
        [
            roof.regime if roof is not None else regime_without_roof(done, family)
            for family, roof, done in zip(families, work.roofs, work.works)
        ],
        np.uint8,
    )
    regime[kind == KernelKind.COLLECTIVE] = COLLECTIVE
    regime[(kind == KernelKind.COPY) | (kind == KernelKind.MEMSET)] = COPY
    return regime
