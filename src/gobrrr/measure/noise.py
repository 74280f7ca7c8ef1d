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

    A quiet null's own interval, and at least ``NULL_MEDIAN``; a noisy one's ``_noisy_reach``.
    An interval of fewer than ``FEWEST_PAIRS`` misses the truth more often, and has to lie farther.
    """
    low, high = null.low, null.high
    if not is_quiet(null):
        high, _ = _noisy_reach(null)
        low = 1.0 / high
    if pairs < FEWEST_PAIRS:
        # A power, because ratios multiply: twice as fast is as far from 1 as half as fast.
        high = max(_farther_end(null), high) ** FEW_PAIRS_REACH
        low = 1.0 / high
    return min(low, 1.0 - NULL_MEDIAN), max(high, 1.0 + NULL_MEDIAN)


def why_so_far(null: Interval) -> str:
    """Where the reach of a noisy null comes from, as a clause."""
    return _noisy_reach(null)[1]


def _noisy_reach(null: Interval) -> tuple[float, str]:
    """The ratio that a change has to exceed beside a noisy null, and where it comes from.

    How wide a null that holds 1 is says how long it was measured and not how far a program lies
    from itself, and a change's own interval is as wide for the same reason: its median's distance
    from 1 counts, and at least what is allowed of a quiet one. One that lies apart from 1 as a
    whole is no disturbance of turns: two copies or processes differ by as much as its farther end,
    and two others may differ by twice as much as its median.
    """
    median = max(null.median, 1.0 / null.median)
    reaches = [
        (median, "as far from 1 as its median"),
        (1.0 + NULL_WIDTH, "the least beside a noisy program"),
    ]
    if null.low > 1.0 or null.high < 1.0:
        reaches += [
            (_farther_end(null), "as far from 1 as that range reaches"),
            (median**2, "twice as far from 1 as its median, as two other runs may lie"),
        ]
    return max(reaches)


def _farther_end(null: Interval) -> float:
    return max(null.high, 1.0 / null.low)
