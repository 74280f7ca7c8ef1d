"""Which of the user's lines spend the time of Python or of the data loader, from samples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from gobrrr.attribution.cpu import PYTHON, StepPieces
from gobrrr.capture.sampler import LineSample

# A gap shorter than the sampler's interval is seldom sampled: it goes to the op it leads to.
UNKNOWN_LINE = "(no line of the program: the framework's own Python)"


def time_by_line(
    steps: Sequence[tuple[StepPieces, Sequence[LineSample]]],
    op_sources: Sequence[str],
    owner: int = PYTHON,
) -> dict[str, float]:
    """Share of an owner's time per line, summing to 1 (empty if it has none).

    A gap between ops that was sampled is divided among the lines seen in it; one that was not is
    given to the line of the op it leads to (``op_sources`` per recorded op).
    """
    total: dict[str, float] = defaultdict(float)
    for pieces, samples in steps:
        chosen = np.flatnonzero(pieces.piece_owner == owner)
        start, end = pieces.piece_start_ns[chosen], pieces.piece_end_ns[chosen]
        times = np.array([sample.time_ns for sample in samples], np.int64)
        gap = np.searchsorted(start, times, "right") - 1
        valid = (gap >= 0) & (times < end[np.maximum(gap, 0)]) if len(start) else times < 0
        sampled: dict[int, list[str]] = defaultdict(list)
        for index in np.flatnonzero(valid).tolist():
            sampled[int(gap[index])].append(samples[index].line or UNKNOWN_LINE)
        for index, lines in sampled.items():
            length = float(end[index] - start[index])
            for line in lines:
                total[line] += length / len(lines)
        # The others, by position of the next op: host_ns has them summed already.
        by_op = pieces.host_ns[owner].copy()
        for index in sampled:
            position = pieces.piece_leads_to[chosen[index]]
            by_op[position] -= float(end[index] - start[index])
        for position in np.flatnonzero(by_op > 0).tolist():
            known = position < len(op_sources) and op_sources[position]
            total[op_sources[position] if known else UNKNOWN_LINE] += float(by_op[position])
    everything = sum(total.values())
    if everything <= 0:
        return {}
    return {line: time / everything for line, time in total.items()}
