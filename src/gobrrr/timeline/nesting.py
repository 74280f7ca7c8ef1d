"""Which span encloses which, for whole columns of spans at a time.

Spans of one thread mostly nest. Two things break it: clocks round, so that a child may end up to a
microsecond after its parent; and ranges that a program opens and closes itself begin inside one
call and end inside another. So the parent of a span is the span that started last before it, still
runs when it starts, and does not end before it by more than the rounding (ties: the longer one is
the parent).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]


# Whole microseconds (PyTorch up to 2.2): start and duration are each cut off.
ROUNDING_NS = 1000


def parents(
    start: Int64, end: Int64, thread: NDArray[Any], rounding_ns: int = ROUNDING_NS
) -> Int64:
    """The index of each span's parent, -1 for outermost spans.

    The columns are sorted by start, ties by the longer span first (as in ``HostSpans``).
    Every candidate that cannot be the parent is replaced by *its* candidate, all rows at once.
    That is sound: a span between a row and its candidate had ended when the row started, or ends
    before it; whatever then rejects the row for a later span rejects that one too.
    """
    n = len(start)
    order = np.argsort(thread, kind="stable")
    low, high, lane = start[order], end[order], thread[order]
    candidate = np.arange(-1, n - 1, dtype=np.int64)
    if n:
        candidate[1:][lane[1:] != lane[:-1]] = -1
        candidate[0] = -1
    open_rows = np.flatnonzero(candidate >= 0)
    while len(open_rows):
        reach = high[candidate[open_rows]]
        over = (reach <= low[open_rows]) | (reach + rounding_ns < high[open_rows])
        open_rows = open_rows[over]
        candidate[open_rows] = candidate[candidate[open_rows]]
        open_rows = open_rows[candidate[open_rows] >= 0]
    result = np.full(n, -1, np.int64)
    result[order] = np.where(candidate >= 0, order[candidate], -1)
    return result


def nearest(parent: Int64, matches: NDArray[np.bool_]) -> Int64:
    """For each span: itself if it matches, else its nearest enclosing span that does, else -1.

    Pointer jumping: the number of rounds is the logarithm of the depth.
    """
    n = len(parent)
    if not matches.any():
        # No range of the data loader, say: most kinds of spans are in few traces.
        return np.full(n, -1, np.int64)
    # Row n stands for "none": it points to itself.
    jump = np.append(np.where(matches, np.arange(n), np.where(parent >= 0, parent, n)), n)
    while True:
        further = jump.take(jump)
        if np.array_equal(further, jump):
            break
        jump = further
    result: Int64 = jump[:n].copy()
    result[result == n] = -1
    # An outermost span that does not match points at the end marker; any other end is a match.
    return result


def depths(parent: Int64) -> Int64:
    """How many spans enclose each span."""
    n = len(parent)
    jump = np.append(np.where(parent >= 0, parent, n), n)
    depth = np.append((parent >= 0).astype(np.int64), 0)
    while n and (jump[:n] != n).any():
        depth = depth + depth[jump]
        jump = jump[jump]
    return depth[:n]


def inherited_minimum(parent: Int64, value: NDArray[Any]) -> NDArray[Any]:
    """For each span: the least ``value`` among itself and all spans that enclose it."""
    n = len(parent)
    best = np.append(value, value.max() if n else 0)
    jump = np.append(np.where(parent >= 0, parent, n), n)
    while n and (jump[:n] != n).any():
        best = np.minimum(best, best[jump])
        jump = jump[jump]
    return best[:n]


def _hidden_from(start: Int64, end: Int64, rounding_ns: int) -> Int64:
    """Where each span of one thread is hidden for good: at its end, or at the start of the first
    later span that begins inside it and outlives it.
    """
    n = len(start)
    # The next span that ends later, found like parents, from the right; n stands for none.
    reach = np.append(end, np.iinfo(np.int64).max)
    candidate = np.append(np.arange(1, n + 1, dtype=np.int64), n)
    open_rows = np.arange(n)
    while len(open_rows):
        over = reach[candidate[open_rows]] <= end[open_rows] + rounding_ns
        open_rows = open_rows[over]
        candidate[open_rows] = candidate[candidate[open_rows]]
    begins = np.append(start, np.iinfo(np.int64).max)[candidate[:n]]
    result: Int64 = np.minimum(end, begins)
    return result


def innermost_segments(
    start: Int64, end: Int64, parent: Int64, rounding_ns: int = ROUNDING_NS
) -> tuple[Int64, Int64]:
    """The innermost span at every instant of *one* thread: the one that started last.

    The columns are those of one thread, sorted as for ``parents``, and ``parent`` indexes them.
    Returns ``(time, span)``: from ``time[i]`` to ``time[i + 1]`` the innermost span is
    ``span[i]`` (-1: none); the last entry has no end and is -1.
    """
    # A child that outlives its parent by a clock's rounding is cut where the parent ends.
    shut = inherited_minimum(parent, _hidden_from(start, end, rounding_ns))
    row = np.flatnonzero(shut > start)
    if len(row) == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    time = np.concatenate((start[row], shut[row]))
    label = np.concatenate((row, parent[row]))
    # At one instant: ends before starts; inner ends before outer ends; outer starts first.
    kind = np.repeat(np.array([1, 0], np.int8), len(row))
    tie = np.concatenate((row, -row))
    order = np.lexsort((tie, kind, time))
    time, label = time[order], label[order]
    last = np.append(time[1:] != time[:-1], True)
    return time[last], label[last]
