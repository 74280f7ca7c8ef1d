"""Arithmetic on sets of time intervals, in integer nanoseconds and whole columns at a time.

An interval is half open, ``[start, end)``. A *set* is a pair of int64 arrays ``(start, end)``,
sorted, disjoint and not touching, as ``union`` returns it. Nothing here rounds.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
_Integer = TypeVar("_Integer", bound=np.integer[Any])


class IntervalSet(NamedTuple):
    """Sorted, disjoint, non-empty intervals that do not touch; both columns int64 ns."""

    start: Int64
    end: Int64

    @property
    def total(self) -> int:
        """Length of all intervals together, in ns."""
        return int((self.end - self.start).sum())


class Pieces(NamedTuple):
    """Parts of intervals: ``row`` says of which, ``start`` and ``end`` where (ns)."""

    row: Int64
    start: Int64
    end: Int64


def empty_set() -> IntervalSet:
    """No time at all."""
    return IntervalSet(np.empty(0, np.int64), np.empty(0, np.int64))


def union(start: Int64, end: Int64) -> IntervalSet:
    """The time that any of the intervals covers.

    ``start`` and ``end`` have the same shape (n,), in any order; intervals with ``end <= start``
    cover nothing. O(n log n).
    """
    keep = end > start
    if not keep.all():
        start, end = start[keep], end[keep]
    if len(start) == 0:
        return empty_set()
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    opens = np.empty(len(start), bool)
    opens[0] = True
    np.greater(start[1:], reach[:-1], out=opens[1:])
    first = np.flatnonzero(opens)
    last = np.append(first[1:] - 1, len(start) - 1)
    return IntervalSet(start[first], reach[last])


def complement(of: IntervalSet, low: int, high: int) -> IntervalSet:
    """The time in ``[low, high)`` that ``of`` does not cover."""
    start = np.concatenate(([low], of.end)).astype(np.int64)
    end = np.concatenate((of.start, [high])).astype(np.int64)
    start, end = np.maximum(start, low), np.minimum(end, high)
    keep = end > start
    return IntervalSet(start[keep], end[keep])


def intersect_rows(start: Int64, end: Int64, other: IntervalSet) -> Pieces:
    """The parts of each interval that ``other`` covers, sorted by row, then by time.

    ``start`` and ``end`` may overlap one another; O((n + pieces) log m).
    """
    first = np.searchsorted(other.end, start, side="right")
    last = np.searchsorted(other.start, end, side="left")
    count = np.maximum(last - first, 0)
    count[end <= start] = 0
    row = np.repeat(np.arange(len(start), dtype=np.int64), count)
    # The position inside each row's run: 0, 1, ... count - 1.
    within = np.arange(len(row), dtype=np.int64) - np.repeat(np.cumsum(count) - count, count)
    hit = first[row] + within
    return Pieces(
        row, np.maximum(start[row], other.start[hit]), np.minimum(end[row], other.end[hit])
    )


def intersection(a: IntervalSet, b: IntervalSet) -> IntervalSet:
    """The time that both cover."""
    pieces = intersect_rows(a.start, a.end, b)
    return IntervalSet(pieces.start, pieces.end)


def difference(a: IntervalSet, b: IntervalSet) -> IntervalSet:
    """The time that ``a`` covers and ``b`` does not."""
    if len(a.start) == 0:
        return a
    return intersection(a, complement(b, int(a.start[0]), int(a.end[-1])))


def merge(a: IntervalSet, b: IntervalSet) -> IntervalSet:
    """The time that either covers."""
    return union(np.concatenate((a.start, b.start)), np.concatenate((a.end, b.end)))


def clip_to_windows(start: Int64, end: Int64, windows: Int64) -> tuple[Pieces, Int64]:
    """Cuts intervals at the borders of ``windows``, an (n, 2) array that is sorted and disjoint.

    Returns the pieces and, for each, the index of its window. Time outside all windows is dropped.
    """
    if len(windows) == 0:
        nothing = np.empty(0, np.int64)
        return Pieces(nothing, nothing, nothing), nothing
    # Windows tile, so they touch: they are not an IntervalSet, but the search only needs order.
    pieces = intersect_rows(start, end, IntervalSet(windows[:, 0], windows[:, 1]))
    keep = pieces.end > pieces.start
    pieces = Pieces(*(column[keep] for column in pieces))
    return pieces, np.searchsorted(windows[:, 1], pieces.start, side="right")


def ownership(start: Int64, end: Int64, rank: NDArray[np.integer]) -> Pieces:
    """Gives each instant that any interval covers to exactly one of them.

    The lowest ``rank`` wins; within a rank the interval that started first (ties: the one that
    stands first in the columns), until it ends. Returns disjoint pieces whose union is the union
    of the intervals, sorted by start.
    """
    taken = empty_set()
    rows, starts, ends = [], [], []
    for level in distinct(rank):
        index = np.flatnonzero((rank == level) & (end > start))
        if len(index) == 0:
            continue
        index = index[np.argsort(start[index], kind="stable")]
        low, high = start[index], end[index]
        reach = np.maximum.accumulate(high)
        free_from = low.copy()
        np.maximum(low[1:], reach[:-1], out=free_from[1:])
        level_set = union(low, high)
        free = complement(taken, int(low[0]), int(reach[-1]))
        pieces = intersect_rows(free_from, high, free)
        rows.append(index[pieces.row])
        starts.append(pieces.start)
        ends.append(pieces.end)
        taken = merge(taken, level_set)
    if not rows:
        nothing = np.empty(0, np.int64)
        return Pieces(nothing, nothing, nothing)
    row, low, high = (np.concatenate(part) for part in (rows, starts, ends))
    order = np.argsort(low, kind="stable")
    return Pieces(row[order], low[order], high[order])


def distinct(values: NDArray[_Integer]) -> NDArray[_Integer]:
    """The distinct values of a column of integers, ascending.

    ``np.unique`` without options does the same and loads ``numpy.ma`` for it, which takes a tenth
    of the time of a short command.
    """
    ordered = np.sort(values)
    if len(ordered) == 0:
        return ordered
    is_new: NDArray[np.bool_] = np.append(True, ordered[1:] != ordered[:-1])
    return ordered[is_new]
