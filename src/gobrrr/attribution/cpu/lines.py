"""Which of the user's lines spend the time of Python or of the data loader."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gobrrr.attribution.lane import PYTHON, StepPieces
from gobrrr.live.profiles.cpu_timeline import CpuCapture
from gobrrr.observe.sampler import LineSample
from gobrrr.timeline.names import UNKNOWN_LINE


@dataclass(frozen=True)
class LaneStep:
    """One step of a capture, with the lines that a sampler saw in it (none: it did not run)."""

    capture: CpuCapture
    pieces: StepPieces
    samples: Sequence[LineSample] = ()


class Spent(NamedTuple):
    """Where time went: at a line, and whether the thread slept there."""

    line: str
    asleep: bool


def time_by_line(steps: Sequence[LaneStep], owner: int = PYTHON) -> dict[Spent, float]:
    """Share of an owner's time per line, summing to 1 (empty if no line is known at all).

    A gap between ops that was sampled is divided among the lines seen in it; one that was not is
    given to the line of the Python frame that it is part of, where frames were recorded, else to
    the line of the op it leads to.
    """
    total: dict[Spent, float] = defaultdict(float)
    for step in steps:
        pieces, names = step.pieces, step.capture.timeline.names
        chosen = np.flatnonzero(pieces.piece_owner == owner)
        start, end = pieces.piece_start_ns[chosen], pieces.piece_end_ns[chosen]
        length = (end - start).astype(np.float64)
        times = np.array([sample.time_ns for sample in step.samples], np.int64)
        gap = np.searchsorted(start, times, "right") - 1
        valid = (gap >= 0) & (times < end[np.maximum(gap, 0)]) if len(start) else times < 0
        sampled: dict[int, list[Spent]] = defaultdict(list)
        for index in np.flatnonzero(valid).tolist():
            sample = step.samples[index]
            # It slept before, in something that has a name.
            if sample.asleep and sample.asleep_since_ns < start[gap[index]]:
                continue
            sampled[int(gap[index])].append(Spent(sample.line or "", sample.asleep))
        for index, seen in sampled.items():
            for spent in seen:
                total[spent] += float(length[index]) / len(seen)
        length[list(sampled)] = 0.0
        frame = np.append(step.capture.timeline.host.source, -1)[pieces.piece_row[chosen]]
        by_frame = np.bincount(frame + 1, weights=length, minlength=1)
        for source in np.flatnonzero(by_frame[1:] > 0).tolist():
            total[Spent(names[source], False)] += float(by_frame[source + 1])
        leads_to = pieces.piece_leads_to[chosen]
        by_op = np.bincount(leads_to[frame < 0], weights=length[frame < 0])
        for position in np.flatnonzero(by_op > 0).tolist():
            ops = step.capture.recorded
            source_line = ops[position].source if position < len(ops) else ""
            total[Spent(source_line, False)] += float(by_op[position])
    if not any(time for spent, time in total.items() if spent.line or spent.asleep):
        return {}
    everything = sum(total.values())
    return {
        Spent(spent.line or UNKNOWN_LINE, spent.asleep): time / everything
        for spent, time in total.items()
    }
