from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.timeline import intervals
from gobrrr.timeline.intervals import IntervalSet

# Small coordinates, so that touching, equal and nested intervals are common; the brute-force side
# of every property counts unit cells.
QUICK = settings(max_examples=80)
TIMES = st.integers(0, 24)
INTERVALS = st.lists(st.tuples(TIMES, TIMES), max_size=12)


def columns(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    array = np.array(pairs, np.int64).reshape(-1, 2)
    return array[:, 0].copy(), array[:, 1].copy()


def cells(pairs: list[tuple[int, int]]) -> set[int]:
    return {t for low, high in pairs for t in range(low, high)}


def cells_of(a: IntervalSet) -> set[int]:
    return cells(list(zip(a.start.tolist(), a.end.tolist())))


def assert_is_set(a: IntervalSet) -> None:
    assert (a.end > a.start).all()
    assert (a.start[1:] > a.end[:-1]).all()


def test_union_of_overlapping_touching_and_apart() -> None:
    got = intervals.union(*columns([(5, 7), (0, 2), (2, 3), (1, 2), (9, 9), (8, 6)]))
    assert got.start.tolist() == [0, 5]
    assert got.end.tolist() == [3, 7]
    assert got.total == 3 + 2


def test_nanoseconds_beyond_a_double_stay_exact() -> None:
    # 2**60 + 1 has no float64; a union through floats would lose the last nanosecond.
    base = 2**60
    got = intervals.union(*columns([(base + 1, base + 2), (base + 3, base + 7)]))
    assert got.total == 1 + 4


@QUICK
@given(INTERVALS)
def test_union_covers_the_same_time(pairs: list[tuple[int, int]]) -> None:
    got = intervals.union(*columns(pairs))
    assert_is_set(got)
    assert cells_of(got) == cells(pairs)


@QUICK
@given(INTERVALS, INTERVALS)
def test_set_operations_agree_with_sets(
    first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    a, b = intervals.union(*columns(first)), intervals.union(*columns(second))
    both, without, either = (
        intervals.intersection(a, b),
        intervals.difference(a, b),
        intervals.merge(a, b),
    )
    assert cells_of(both) == cells(first) & cells(second)
    assert cells_of(without) == cells(first) - cells(second)
    assert cells_of(either) == cells(first) | cells(second)
    assert without.total + both.total == a.total


@QUICK
@given(INTERVALS, st.lists(TIMES, min_size=2, max_size=6, unique=True))
def test_windows_that_tile_lose_nothing(pairs: list[tuple[int, int]], borders: list[int]) -> None:
    borders = sorted(borders)
    windows = np.array(list(itertools.pairwise(borders)), np.int64)
    start, end = columns(pairs)
    pieces, window = intervals.clip_to_windows(start, end, windows)
    for index, (low, high) in enumerate(windows.tolist()):
        for row, pair in enumerate(pairs):
            mine = (pieces.row == row) & (window == index)
            got = cells(list(zip(pieces.start[mine].tolist(), pieces.end[mine].tolist())))
            assert got == cells([pair]) & set(range(low, high))


def test_ownership_by_rank_then_by_start() -> None:
    # row 0: [0, 10) rank 1; row 1: [2, 4) rank 0; row 2: [8, 12) rank 1; row 3: [0, 20) rank 2
    got = intervals.ownership(
        np.array([0, 2, 8, 0]), np.array([10, 4, 12, 20]), np.array([1, 0, 1, 2])
    )
    assert list(zip(got.row.tolist(), got.start.tolist(), got.end.tolist())) == [
        (0, 0, 2),
        (1, 2, 4),
        (0, 4, 10),
        (2, 10, 12),
        (3, 12, 20),
    ]


@QUICK
@given(st.lists(st.tuples(TIMES, TIMES, st.integers(0, 3)), max_size=10))
def test_every_instant_has_exactly_one_owner(rows: list[tuple[int, int, int]]) -> None:
    start, end = columns([(low, high) for low, high, _ in rows])
    rank = np.array([r for *_, r in rows], np.int64)
    owned = intervals.ownership(start, end, rank)
    seen: dict[int, int] = {}
    for row, low, high in zip(owned.row.tolist(), owned.start.tolist(), owned.end.tolist()):
        for t in range(low, high):
            assert t not in seen
            seen[t] = row
    assert set(seen) == cells([(low, high) for low, high, _ in rows])
    for t, row in seen.items():
        running = [(r, low, index) for index, (low, high, r) in enumerate(rows) if low <= t < high]
        assert rows[row][2] == min(running)[0]
        assert row == min(running)[2] or rows[row][0] == min(running)[1]


@given(st.lists(st.integers(-(2**40), 2**40)))
def test_distinct_values_are_those_of_a_set(values: list[int]) -> None:
    assert intervals.distinct(np.array(values, np.int64)).tolist() == sorted(set(values))
