"""When a machine is quiet enough to tell a change, and what it takes where it is not."""

from __future__ import annotations

from gobrrr.measure.summary import Interval

# A program timed against itself is quiet if the median is this near 1 and the interval this narrow.
# A change that is nearer to 1 than a quiet program may be is none.
NULL_MEDIAN, NULL_WIDTH = 0.02, 0.05
# The least and the largest of six pairs hold the median in 97 % of cases; of fewer, in less than
# 95 %. A change so much farther than the null reaches is believed all the same.
FEWEST_PAIRS, FEW_PAIRS_REACH = 6, 3


def is_quiet(ratio: Interval) -> bool:
    """Whether the ratio of a program to itself is near 1 and narrow."""
    return abs(ratio.median - 1.0) <= NULL_MEDIAN and ratio.high - ratio.low < NULL_WIDTH


def is_apart(low: float, high: float) -> bool:
    """Whether ratios from ``low`` to ``high`` are on one side of 1, beyond a quiet program's."""
    return low > 1.0 + NULL_MEDIAN or high < 1.0 - NULL_MEDIAN


def reach_of(null: Interval, pairs: int = FEWEST_PAIRS) -> tuple[float, float]:
    """The ratios, low and high, that the whole interval of a change of so many pairs must clear.

    A quiet null's own interval, and at least ``NULL_MEDIAN``. How wide a noisy one is says how long
    it was measured and not how far a program lies from itself, and a change's own interval is as
    wide for the same reason: of a noisy null the median's distance from 1 counts, and at least what
    is allowed of a quiet one. One that lies apart from 1 as a whole is no disturbance of turns: two
    copies or processes differ by that, and two others may differ by twice as much.
    An interval of fewer than ``FEWEST_PAIRS`` misses the truth more often, and has to lie farther.
    """
    low, high = null.low, null.high
    if not is_quiet(null):
        apart = max(null.median, 1.0 / null.median)
        if null.low > 1.0 or null.high < 1.0:
            apart = apart**2
        high = max(apart, 1.0 + NULL_WIDTH)
        low = 1.0 / high
    if pairs < FEWEST_PAIRS:
        # A power, because ratios multiply: twice as fast is as far from 1 as half as fast.
        high = max(null.high, 1.0 / null.low, high) ** FEW_PAIRS_REACH
        low = 1.0 / high
    return min(low, 1.0 - NULL_MEDIAN), max(high, 1.0 + NULL_MEDIAN)
