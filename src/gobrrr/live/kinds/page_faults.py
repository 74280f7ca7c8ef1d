"""Page faults of timed steps: what one costs, and which steps have those of the program alone.

A step's buffers come from memory that malloc keeps, or from pages that it gave back and has to
fault in again. Which of the two depends on what lies at the top of the heap, and that is moved by
whatever else allocates there: a recorder, a profiler. Steps that were timed before anything was
attached have the faults of the program alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from gobrrr.timeline.quantities import count

# Of fewer steps a median says nothing of their faults.
FEWEST = 3
# Medians that differ by a smaller share, or by so few, are the same.
DIFFERENT, DIFFERENT_COUNT = 0.1, 64
# Faults that account for less of the step are not worth a block of its own, nor do they tell what
# one costs.
WORTH = 0.02
# A minor fault costs no less: entering the kernel and clearing 4 KiB at 20 GB/s.
LEAST_FAULT_NS = 300.0
# ... and no more, of huge pages: clearing 2 MiB at 2 GB/s.
MOST_FAULT_NS = 1e6
_MOST_STEPS = 150


@dataclass(frozen=True, slots=True)
class BlockFaults:
    """Median page faults of a step, in the steps before anything was attached and in those after.

    ``fault_ns``: what one costs, with giving the page back; ``None`` where these steps do not tell.
    """

    before: float
    after: float | None
    fault_ns: float | None

    @property
    def moved(self) -> bool:
        """Whether the later steps are not those of the program alone."""
        if self.after is None:
            return False
        difference = abs(self.before - self.after)
        return difference >= max(DIFFERENT_COUNT, DIFFERENT * max(self.before, self.after))

    def notice(self, steps: int) -> str:
        """What was done about it, of so many steps before."""
        return (
            f"Later steps have {count(self.after or 0.0)} page faults each, the {steps} timed "
            f"before gobrrr was attached {count(self.before)}: what gobrrr allocates changes "
            "which memory malloc gives back. The step told is that of the steps before."
        )


def block_faults(
    before: Sequence[tuple[int, int]], after: Sequence[tuple[int, int]]
) -> BlockFaults | None:
    """What two blocks of timed steps say; ``None`` where the first has too few to tell.

    Args:
        before: page faults and length in ns of each that was timed before anything was attached.
        after: of those timed later.
    """
    if len(before) < FEWEST:
        return None
    step_ns = median(length_ns for _, length_ns in before)
    fault_ns = cost_of_fault([*before, *after])
    first = float(median(faults for faults, _ in before))
    last = float(median(faults for faults, _ in after)) if len(after) >= FEWEST else None
    if last is not None and abs(first - last) * (fault_ns or LEAST_FAULT_NS) < WORTH * step_ns:
        last = None
    return BlockFaults(first, last, fault_ns)


def cost_of_fault(steps: Sequence[tuple[int, int]]) -> float | None:
    """Nanoseconds that each page fault more makes a step longer; ``None`` if it cannot be told.

    The median slope over pairs of steps (P. K. Sen, *Estimates of the Regression Coefficient Based
    on Kendall's Tau*, 1968), of pairs that lie apart.

    Args:
        steps: page faults and length in ns of each.
    """
    every = max(1, len(steps) // _MOST_STEPS)
    steps = sorted(steps[::every])
    if len(steps) < 2 * FEWEST:
        return None
    spread = steps[-1 - len(steps) // 10][0] - steps[len(steps) // 10][0]
    if spread < DIFFERENT_COUNT:
        return None
    slopes = [
        (b_ns - a_ns) / (b_faults - a_faults)
        for (a_faults, a_ns), (b_faults, b_ns) in combinations(steps, 2)
        if b_faults - a_faults >= spread / 2
    ]
    slope = median(slopes)
    step_ns = median(length_ns for _, length_ns in steps)
    rising = sum(each > 0 for each in slopes) >= 0.9 * len(slopes)
    if not rising or slope * spread < WORTH * step_ns or not slope <= MOST_FAULT_NS:
        return None
    return max(slope, LEAST_FAULT_NS)
