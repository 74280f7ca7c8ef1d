"""Which of the user's lines spend the time of Python or of the data loader."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gobrrr.attribution.lane import PYTHON, StepPieces
from gobrrr.capture.cpu_timeline import CpuCapture
from gobrrr.capture.sampler import LineSample

# A gap shorter than the sampler's interval is seldom sampled: it goes to the op it leads to.
UNKNOWN_LINE = "(no line of the program: the framework's own Python)"


@dataclass(frozen=True)
class LaneStep:
    """One step of a capture, with the lines that a sampler saw in it (none: it did not run)."""

    capture: CpuCapture
    pieces: StepPieces
    samples: Sequence[LineSample] = ()


def time_by_line(steps: Sequence[LaneStep], owner: int = PYTHON) -> dict[str, float]:
    """Share of an owner's time per line, summing to 1 (empty if no line is known at all).

    A gap between ops that was sampled is divided among the lines seen in it; one that was not is
    given to the line of the Python frame that it is part of, where frames were recorded, else to
    the line of the op it leads to.
    """
    total: dict[str, float] = defaultdict(float)
    for step in steps:
        pieces, names = step.pieces, step.capture.timeline.names
        chosen = np.flatnonzero(pieces.piece_owner == owner)
        start, end = pieces.piece_start_ns[chosen], pieces.piece_end_ns[chosen]
        length = (end - start).astype(np.float64)
        times = np.array([sample.time_ns for sample in step.samples], np.int64)
        gap = np.searchsorted(start, times, "right") - 1
        valid = (gap >= 0) & (times < end[np.maximum(gap, 0)]) if len(start) else times < 0
        sampled: dict[int, list[str]] = defaultdict(list)
        for index in np.flatnonzero(valid).tolist():
            sampled[int(gap[index])].append(step.samples[index].line or "")
        for index, lines in sampled.items():
            for line in lines:
                total[line] += float(length[index]) / len(lines)
        length[list(sampled)] = 0.0
        frame = np.append(step.capture.timeline.host.source, -1)[pieces.piece_row[chosen]]
        by_frame = np.bincount(frame + 1, weights=length, minlength=1)
        for source in np.flatnonzero(by_frame[1:] > 0).tolist():
            total[names[source]] += float(by_frame[source + 1])
        leads_to = pieces.piece_leads_to[chosen]
        by_op = np.bincount(leads_to[frame < 0], weights=length[frame < 0])
        for position in np.flatnonzero(by_op > 0).tolist():
            ops = step.capture.recorded
            total[ops[position].source if position < len(ops) else ""] += float(by_op[position])
    if not any(total[line] for line in total if line):
        return {}
    everything = sum(total.values())
    return {line or UNKNOWN_LINE: time / everything for line, time in total.items()}
