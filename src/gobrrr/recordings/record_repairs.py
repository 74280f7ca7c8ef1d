"""Records that no device can have made: left out or cut short, before steps are cut from them.

A kernel cannot run at a time that is not the recording's, long before its launch (records of
another clock, pytorch/pytorch#192021), for no time at all (pytorch/kineto#109), or on through the
kernels behind it on its stream (AMD-AGI/TraceLens#669). Kernels of one stream that overlap by tens
of microseconds are real: the next begins early (programmatic dependent launch).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gobrrr.recordings.records import (
    DAMAGED,
    OUTSIDE_NS,
    damage,
    empty_kernels,
    outside_recording,
)
from gobrrr.timeline.data import HostSpans, KernelKind, Kernels, Timeline
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.intervals import distinct
from gobrrr.timeline.quantities import count

Int64 = NDArray[np.int64]
# A kernel that is earlier than its launch by more is on another clock than the host.
OTHER_CLOCK_NS = 100_000
# Kernels of one stream that overlap by more are not the two that ran.
MOST_OVERLAP_NS = 100_000
# Of more of the records than this nothing is left out: no step would be left.
_MOST_LEFT_OUT = 0.5
# The last of a stream is as long as others of its name: not so many times.
_TIMES_LONGER = 10


@dataclass(frozen=True, slots=True)
class Repaired:
    """Kernels that can be, sentences on the others, and when (ns) one of these was."""

    kernels: Kernels
    notices: tuple[str, ...] = ()
    doubtful_ns: tuple[int, ...] = ()


def repaired(host: HostSpans, kernels: Kernels) -> Repaired:
    """Leave out and cut short what cannot be; the same kernels where all can."""
    outside = outside_recording(host, kernels)
    linked = kernels.launch >= 0
    early = np.zeros(len(kernels), bool)
    begun = host.start_ns[kernels.launch[linked]]
    early[linked] = kernels.start_ns[linked] + OTHER_CLOCK_NS < begun
    early &= ~outside
    empty = empty_kernels(kernels) & ~outside & ~early
    left_out = outside | early | empty
    beside = _no_kernels(kernels, ~left_out)
    left_out |= beside
    if left_out.sum() > _MOST_LEFT_OUT * len(kernels):
        return Repaired(kernels)
    faults = (
        (outside, "at times that are not the recording's"),
        (early, "that start long before their launch call"),
        (empty, "without a duration"),
        (beside, "that are none but span others on their stream"),
    )
    said = [f"{count(int(found.sum()))} {what}" for found, what in faults if found.any()]
    notices = [f"Kernels left out: {', '.join(said)}."] if said else []
    when = np.where(linked, 0, kernels.start_ns)
    when[linked] = begun
    # What merely stood beside kernels lacks nothing.
    doubtful = when[left_out & ~beside & (linked | ~outside)].tolist()
    kernels = kernels.take(~left_out) if left_out.any() else kernels
    ends = _cut_ends(host, kernels)
    cut = ends < kernels.end_ns
    if cut.any():
        number = int(cut.sum())
        notices.append(
            f"{count(number)} kernel{'s claim' if number > 1 else ' claims'} to run on through "
            "those behind on the stream: cut where the next begins."
        )
        doubtful += kernels.start_ns[cut].tolist()
        kernels = replace(kernels, end_ns=ends)
    return Repaired(kernels, tuple(notices), tuple(sorted(doubtful)))


def _streams(kernels: Kernels, among: NDArray[np.bool_]) -> list[Int64]:
    return [
        np.flatnonzero(among & (kernels.stream == stream))
        for stream in distinct(kernels.stream).tolist()
    ]


def _no_kernels(kernels: Kernels, among: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Rows without a launch, in a recording with launches, that hold whole others of the stream."""
    found = np.zeros(len(kernels), bool)
    if not (kernels.launch >= 0).any():
        return found
    unlinked = (kernels.launch < 0) & (kernels.op < 0) & (kernels.kind == KernelKind.KERNEL)
    for rows in _streams(kernels, among):
        start, end = kernels.start_ns[rows], kernels.end_ns[rows]
        # At the same start the longer one may stand behind.
        rivals = np.flatnonzero(unlinked[rows])
        for i in rivals.tolist():
            low = np.searchsorted(start, start[i], side="left")
            high = np.searchsorted(start, end[i], side="left")
            inside = np.arange(low, high)
            inside = inside[(inside != i) & (end[inside] <= end[i]) & (end[inside] > start[inside])]
            held_ns = int((end[inside] - start[inside]).sum())
            found[rows[i]] = len(inside) > 0 and held_ns > MOST_OVERLAP_NS / 10
    return found


def _cut_ends(host: HostSpans, kernels: Kernels) -> Int64:
    """Ends of kernels, at the start of the next on the stream where they reach far beyond it.

    The last of a stream has no next: far longer than others of its name, and for the most part
    beyond what the host was recorded for, it is as long as they are in the median; far beyond that
    without others to compare it with, it ends with the host.
    """
    ends: Int64 = kernels.end_ns.copy()
    host_end = int(host.end_ns.max()) if len(host) else None
    for rows in _streams(kernels, np.ones(len(kernels), bool)):
        start, end = kernels.start_ns[rows], kernels.end_ns[rows]
        beyond = end[:-1] > start[1:] + MOST_OVERLAP_NS
        ends[rows[:-1][beyond]] = start[1:][beyond]
        if not len(rows) or host_end is None or end[-1] <= host_end:
            continue
        same = np.flatnonzero(kernels.name == kernels.name[rows[-1]])
        took = (kernels.end_ns - kernels.start_ns)[same[same != rows[-1]]]
        own = int(end[-1] - start[-1])
        usual = int(np.median(took)) if len(took) else own
        if own > max(_TIMES_LONGER * usual, MOST_OVERLAP_NS) and end[-1] > host_end + own // 2:
            ends[rows[-1]] = start[-1] + usual
        elif end[-1] > host_end + OUTSIDE_NS:
            ends[rows[-1]] = max(int(start[-1]), host_end)
    return ends


def sound_steps(timeline: Timeline) -> Timeline:
    """The same recording without the steps in which records are wrong or missing.

    Raises InputError where no step is left and more than a trace of the records cannot be.
    """
    records = timeline.records
    if records is None or not records.doubtful_ns:
        return timeline
    at = np.searchsorted(timeline.steps[:, 0], np.array(records.doubtful_ns), side="right") - 1
    wrong = np.unique(at[at >= 0])
    sound = np.setdiff1d(np.arange(len(timeline.steps)), wrong)
    windows, kernels = timeline.steps[sound], timeline.kernels
    if not len(sound):
        if len(records.doubtful_ns) > DAMAGED * records.kernels:
            doubtful = f"{len(records.doubtful_ns)} of {records.kernels} kernels"
            why = damage(timeline) or f"{doubtful} have times that cannot be; record again"
            raise InputError(f"{timeline.source}: {why}")
        return timeline
    if not len(wrong):
        return timeline
    some = f"{count(len(wrong))} of {count(len(timeline.steps))} steps"
    notice = f"{some} are left out: records in them cannot be, or are missing."
    # The kernel that ends a window says what its idle time was for.
    place = np.minimum(np.searchsorted(windows[:, 1], kernels.start_ns), len(windows) - 1)
    inside = (kernels.end_ns > windows[place, 0]) & (kernels.start_ns <= windows[place, 1])
    return replace(
        timeline,
        kernels=kernels.take(inside),
        steps=windows,
        step_names=tuple(timeline.step_names[i] for i in sound.tolist()),
        notices=(*timeline.notices, notice),
    )
