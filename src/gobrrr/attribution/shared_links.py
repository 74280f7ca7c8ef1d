"""Transfers that run beside each other over the same links: whose time is it?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# Traces give microseconds: what overlaps by less came one after the other.
_CLOCK_NS = 1_000


def shared_ns(start_ns: Int64 | Float64, end_ns: Int64 | Float64, amount: Float64) -> Float64:
    """The part of each of n transfers in the time in which any of them ran, by what it carried.

    Transfers that overlap, and those that overlap with them, make one stretch of time; each counts
    the part of the stretch that its amount is of all amounts in it. So amount over time is the rate
    of the link and not that of one flow's part of it, whoever of the flows got more of the link and
    when: which of them did is not recorded.

    Args:
        start_ns: when each begins, shape (n,).
        end_ns: when each ends, shape (n,), not before its start.
        amount: what each carries over the link, shape (n,), at least 0. In a stretch that carries
            nothing all count alike.

    Returns:
        Shape (n,); they add up to the time in which any ran, but for overlaps under 1 us.
    """
    order = np.lexsort((end_ns, start_ns))
    start, end = np.asarray(start_ns, np.float64)[order], np.asarray(end_ns, np.float64)[order]
    if not len(start):
        return np.zeros(0)
    until = np.maximum.accumulate(end)
    first = np.append(True, start[1:] > until[:-1] - _CLOCK_NS)
    stretch = np.cumsum(first) - 1
    length = np.maximum.reduceat(until, np.flatnonzero(first)) - start[first]
    carried = amount[order]
    in_all = np.bincount(stretch, weights=carried)[stretch]
    alike = 1.0 / np.bincount(stretch)[stretch]
    part = np.divide(carried, in_all, out=alike, where=in_all > 0)
    found = np.empty(len(start))
    found[order] = part * length[stretch]
    return found
