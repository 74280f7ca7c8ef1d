"""What a profiler of a device leaves behind: steps after it against steps before it."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.measure import summarise
from gobrrr.measure.noise import NULL_MEDIAN
from gobrrr.timeline.quantities import percent, time_text

# Fewer steps on either side have no interval of 95 %.
_FEWEST = 6


def slower_since_profiled(plain_ns: Sequence[Sequence[int]]) -> list[str]:
    """That steps are slower since the profiler was used, where both blocks' spread allows no other.

    Those after it are not the program's own then (1.5 times longer on an H200, whose CUPTI stayed
    attached). ``plain_ns``: step lengths before and after the profiled steps.
    """
    before_ns, after_ns = plain_ns
    if min(len(before_ns), len(after_ns)) < _FEWEST:
        return []
    before, after = summarise(before_ns), summarise(after_ns)
    # The whole interval of the one above that of the other, and by more than two runs of the same
    # program differ.
    if after.low <= before.high or after.median <= (1.0 + NULL_MEDIAN) * before.median:
        return []
    return [
        f"Steps are {percent(after.median / before.median - 1.0)} slower since the profiler was "
        f"used: {time_text(before.median * 1e-9)} before it and {time_text(after.median * 1e-9)} "
        "after it. The step told is that before. Where the device bounds the step, its clocks may "
        "be the reason."
    ]
