"""Transfers that run beside each other over the same links: whose time is it?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


def shared_ns(start_ns: Int64 | Float64, end_ns: Int64 | Float64) -> Float64:
    """The time of each of n intervals, where a moment of k intervals counts 1/k for each of them.

    So the times of all add up to the time in which any runs, and bytes over it is the rate of the
    link and not that of one flow's part of it. Equal parts are what flows of one congestion control
    get of a link (processor sharing: Kleinrock, Queueing Systems II, 1976, section 4.4).

    Args:
        start_ns: when each begins, shape (n,).
        end_ns: when each ends, shape (n,); one that does not end after its start counts nothing.

    Returns:
        Shape (n,), each at most the length of its interval.
    """
    edges = np.unique(np.concatenate([start_ns, end_ns]).astype(np.float64))
    if len(edges) < 2:
        return np.zeros(len(start_ns))
    begin, end = np.searchsorted(edges, start_ns), np.searchsorted(edges, end_ns)
    end = np.maximum(begin, end)
    change = np.bincount(begin, minlength=len(edges)) - np.bincount(end, minlength=len(edges))
    running = np.cumsum(change)[:-1]
    pieces = np.diff(edges) / np.maximum(running, 1)
    until = np.concatenate([[0.0], np.cumsum(pieces)])
    return np.asarray(until[end] - until[begin], np.float64)
