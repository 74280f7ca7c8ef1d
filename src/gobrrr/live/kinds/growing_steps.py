"""Steps that grow: each takes longer than the one before, as something is kept that gets longer.

Within a block of timed steps nothing that gobrrr does changes, so that a trend is the program's.
Processor time tells it where neighbours make steps longer and shorter, and page faults, which no
neighbour changes. Trends are tested by how many pairs of steps are in order (H. B. Mann,
*Nonparametric Tests Against Trend*, 1945), with the pairs within a block alone (R. M. Hirsch,
J. R. Slack, R. A. Smith, *Techniques of Trend Analysis for Monthly Water Quality Data*, 1982).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from statistics import median

from gobrrr.timeline.quantities import time_text

# Pairs in order, in standard deviations of a step without a trend: of processor time, of wall time,
# which drifts with the machine, and of page faults, beside which a growing time may be noisy.
CERTAIN, CERTAIN_OF_WALL, CERTAIN_OF_FAULTS = 2.5, 4.0, 3.0
# What steps grow by from the first to the last that was timed, for a word of it: of their median.
WORTH = 0.15
# Of a smaller block no trend is told, and of a longer one so many steps are enough.
_FEWEST, _MOST = 5, 150
# Steps whose median stands for the first and for the last.
_AT_AN_END = 3


@dataclass(frozen=True, slots=True)
class TimedStep:
    """One timed step: its place among all steps, its wall and processor time, and page faults.

    ``ran_ns``: ``None`` where it was not read.
    """

    place: int
    length_ns: int
    ran_ns: int | None
    faults: int


def growing_notice(blocks: Iterable[Sequence[TimedStep]]) -> str:
    """What to say of timed steps that grow, in blocks; empty where they are not known to."""
    chosen = [list(islice(b, 0, None, -(-len(b) // _MOST))) for b in blocks if len(b) >= _FEWEST]
    steps = [step for block in chosen for step in block]
    if not steps:
        return ""
    ran = all(step.ran_ns is not None for step in steps)
    times = [[_time_ns(step, ran) for step in block] for block in chosen]
    certain = _order(times) >= (CERTAIN if ran else CERTAIN_OF_WALL)
    faults = [[step.faults for step in block] for block in chosen]
    if not certain and _order(faults) < CERTAIN_OF_FAULTS:
        return ""
    slope_ns = median(
        (later_ns - earlier_ns) / (later.place - earlier.place)
        for block, block_ns in zip(chosen, times)
        for (earlier, earlier_ns), (later, later_ns) in combinations(zip(block, block_ns), 2)
    )
    apart = steps[-1].place - steps[0].place
    all_ns = [time_ns for block_ns in times for time_ns in block_ns]
    if slope_ns * apart < WORTH * median(all_ns):
        return ""
    first, last = (
        time_text(median(end) * 1e-9) for end in (all_ns[:_AT_AN_END], all_ns[-_AT_AN_END:])
    )
    return (
        f"Steps grow: {first}{' of processor time' if ran else ''} at the first that were timed, "
        f"{last} {apart} steps later, so the program keeps something that gets longer. The step "
        "told is of the timed ones alone: a longer run has a longer one."
    )


def _time_ns(step: TimedStep, ran: bool) -> int:
    return step.ran_ns if ran and step.ran_ns is not None else step.length_ns


def _order(blocks: Iterable[Sequence[int]]) -> float:
    """How far the pairs of each block are in order, in standard deviations; 0 for no pairs.

    >>> round(_order([[1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]]), 1)
    4.0
    """
    in_order, variance = 0, 0.0
    for block in blocks:
        n = len(block)
        in_order += sum((b > a) - (b < a) for a, b in combinations(block, 2))
        variance += n * (n - 1) * (2 * n + 5) / 18
    return in_order / math.sqrt(variance) if variance else 0.0
