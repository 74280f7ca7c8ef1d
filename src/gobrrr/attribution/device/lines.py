"""Lines of Python that a device waits for, from steps that were sampled for their lines alone.

The profiler says when the host was in Python, between its operators; the interpreter's frames say
where. Both were attached to further steps, and only how the lines share Python's time is taken from
these: the time itself is that of steps without a sampler.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gobrrr.attribution.device.idle import (
    CAUSE_LEAVES,
    PYTHON,
    IdlePieces,
    find_idle,
    summarise_idle,
)
from gobrrr.attribution.device.run import DeviceAnalysis
from gobrrr.attribution.leaves import IdleGap
from gobrrr.live.measurements import Measurements
from gobrrr.live.profiles.recorded_timeline import with_recorded
from gobrrr.observe.sampler import LineSample
from gobrrr.recordings.records import damage
from gobrrr.timeline import intervals
from gobrrr.timeline.data import Timeline
from gobrrr.timeline.names import UNASKED_LINE, UNKNOWN_LINE


def with_sampled_lines(analysis: DeviceAnalysis, measured: Measurements) -> DeviceAnalysis:
    """The same, its time of Python by the lines that were seen where steps were sampled."""
    timeline = measured.sampled_timeline
    if timeline is None or measured.mostly_waited or damage(timeline):
        return analysis
    recorded = analysis.capture.recorded
    there = with_recorded(timeline, recorded, varying=measured.kind.varying).timeline
    shares = python_by_line(there, measured.line_samples)
    attribution = analysis.found.attribution
    return replace(
        analysis,
        found=replace(
            analysis.found,
            attribution=replace(attribution, idle=_by_line(attribution.idle, shares)),
        ),
        attributed=replace(analysis.attributed, idle=_by_line(analysis.attributed.idle, shares)),
    )


def python_by_line(timeline: Timeline, samples: Sequence[LineSample]) -> dict[str | None, float]:
    """Share of each line in the idle time of Python; sums to 1, empty where there is none.

    A stretch in which lines were seen is divided among them; another has the line of the op that
    it leads to, as all have in a thread that cannot be asked. ``samples`` are on the timeline's
    clock.
    """
    kernels, parent = timeline.kernels, timeline.host.parent
    idle = find_idle(timeline, intervals.union(kernels.start_ns, kernels.end_ns), parent)
    rows = _of_python(timeline, idle)
    start, end = idle.start_ns[rows], idle.end_ns[rows]
    seen: dict[int, Counter[str | None]] = defaultdict(Counter)
    for sample in samples:
        at = int(np.searchsorted(start, sample.time_ns, side="right")) - 1
        # Else it slept before, in something that has a name.
        awake = not sample.asleep or (at >= 0 and sample.asleep_since_ns >= start[at])
        known = awake and sample.line != UNASKED_LINE
        if at >= 0 and sample.time_ns < end[at] and known:
            seen[at][sample.line or UNKNOWN_LINE] += 1
    total: dict[str | None, float] = defaultdict(float)
    for at, lines in seen.items():
        for line, often in lines.items():
            total[line] += float(end[at] - start[at]) * often / lines.total()
    unseen = np.ones(len(rows), bool)
    unseen[list(seen)] = False
    for gap in summarise_idle(timeline, idle.take(rows[unseen]), 1, parent):
        total[gap.source] += gap.duration_ns
    everything = sum(total.values())
    return {line: ns / everything for line, ns in total.items()} if everything else {}


def _of_python(timeline: Timeline, idle: IdlePieces) -> np.ndarray:
    low, high = timeline.steps[0, 0], timeline.steps[-1, 1]
    return np.flatnonzero((idle.cause == PYTHON) & (idle.start_ns >= low) & (idle.end_ns <= high))


def _by_line(gaps: Sequence[IdleGap], shares: dict[str | None, float]) -> tuple[IdleGap, ...]:
    python = CAUSE_LEAVES[PYTHON]
    whole = sum(gap.duration_ns for gap in gaps if gap.leaf == python)
    if not shares or not whole:
        return tuple(gaps)
    found = [gap for gap in gaps if gap.leaf != python]
    found += [IdleGap(whole * share, python, line) for line, share in shares.items()]
    return tuple(sorted(found, key=lambda gap: -gap.duration_ns))
