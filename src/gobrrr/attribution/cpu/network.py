"""Which collective a thread slept for, at each instant that it slept for one."""

from __future__ import annotations

import numpy as np

from gobrrr.attribution.collectives import Exposure
from gobrrr.attribution.cpu.attribute import CpuAttribution
from gobrrr.attribution.lane import NETWORK
from gobrrr.live.profiles.cpu_timeline import CpuCapture
from gobrrr.timeline import intervals
from gobrrr.timeline.data import Int64
from gobrrr.timeline.intervals import IntervalSet, Pieces

NETWORK_LEAF = "memory.network"


def slept_for(capture: CpuCapture, result: CpuAttribution) -> Pieces:
    """Pieces of time in which the lane waited, each with the collective (a row of the kernels).

    Of several that run the one that was asked for first: what waits takes them in order. Time in a
    wait while none runs belongs to no row.
    """
    kernels = capture.timeline.kernels
    waits = waits_of(capture, result)
    # The first asked for is the strongest.
    owned = intervals.ownership(
        kernels.start_ns, kernels.end_ns, np.arange(len(kernels), dtype=np.int64)
    )
    inside = intervals.intersect_rows(owned.start, owned.end, waits)
    return Pieces(owned.row[inside.row], inside.start, inside.end)


def waits_of(capture: CpuCapture, result: CpuAttribution) -> IntervalSet:
    """When the lane waited for other ranks, in all steps."""
    start, end = [], []
    for low, pieces in zip(capture.timeline.steps[:, 0].tolist(), result.steps):
        waits = pieces.piece_owner == NETWORK
        start.append(pieces.piece_start_ns[waits] + low)
        end.append(pieces.piece_end_ns[waits] + low)
    if not start:
        return intervals.empty_set()
    return intervals.union(np.concatenate(start), np.concatenate(end))


def exposure_of(capture: CpuCapture, result: CpuAttribution, pieces: Pieces) -> Exposure:
    """How long each collective ran, and was slept for, in ns per step, scaled like the leaf."""
    kernels, steps = capture.timeline.kernels, max(1, len(capture.timeline.steps))
    raw = waits_of(capture, result).total / steps
    leaf = result.attribution.leaves_ns[NETWORK_LEAF]
    scale = leaf / raw if raw > 0 else 1.0
    length: Int64 = pieces.end - pieces.start
    owned = np.bincount(pieces.row, weights=length, minlength=len(kernels))
    return Exposure(
        owned_ns=owned * scale / steps,
        duration_ns=(kernels.end_ns - kernels.start_ns) / steps,
    )
