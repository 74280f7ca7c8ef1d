"""Which span encloses which, for whole columns of spans at a time.

Spans of one thread nest. Recorded clocks round, so a child may end a little after its parent; the
parent of a span is therefore the span that started last before it and has not yet ended when it
starts (ties: the longer one is the parent).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]


def parents(start: Int64, end: Int64, thread: NDArray[Any]) -> Int64:
    """The index of each span's parent, -1 for outermost spans.

    The columns are sorted by start, ties by the longer span first (as in ``HostSpans``).
    Every candidate that has ended is replaced by *its* candidate, all rows at once. That is
    sound because all spans between a row and its candidate ended before the row started.
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
        over = high[candidate[open_rows]] <= low[open_rows]
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
    # Row n stands for "none": it points to itself.
    jump = np.append(np.where(matches, np.arange(n), np.where(parent >= 0, parent, n)), n)
    while True:
        further = jump[jump]
        if np.array_equal(further, jump):
            break
        jump = further
    result: Int64 = jump[:n].copy()
    result[result == n] = -1
    # An outermost span that does not match points at the end marker; any other end is a match.
    return result


def inherited_minimum(parent: Int64, value: NDArray[Any]) -> NDArray[Any]:
    """For each span: the least ``value`` among itself and all spans that enclose it."""
    n = len(parent)
    best = np.append(value, value.max() if n else 0)
    jump = np.append(np.where(parent >= 0, parent, n), n)
    while n and (jump[:n] != n).any():
        best = np.minimum(best, best[jump])
        jump = jump[jump]
    return best[:n]


def innermost_segments(start: Int64, end: Int64, parent: Int64) -> tuple[Int64, Int64]:
    """The innermost span at every instant of *one* thread.

    The columns are those of one thread, sorted as for ``parents``, and ``parent`` indexes them.
    Returns ``(time, span)``: from ``time[i]`` to ``time[i + 1]`` the innermost span is
    ``span[i]`` (-1: none); the last entry has no end and is -1.
    """
    # A child that outlives its parent by a clock's rounding is cut where the parent ends.
    shut = inherited_minimum(parent, end)
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
