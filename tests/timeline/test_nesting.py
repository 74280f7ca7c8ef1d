from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.timeline import nesting

QUICK = settings(max_examples=80)
SPANS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 12), st.integers(0, 1)), max_size=14)


def sorted_columns(
    spans: list[tuple[int, int, int]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    spans = sorted(spans, key=lambda s: (s[0], -s[1]))
    array = np.array(spans, np.int64).reshape(-1, 3)
    return array[:, 0], array[:, 0] + array[:, 1], array[:, 2]


def test_nested_spans_on_two_threads() -> None:
    # thread 0: a[0,10) > b[1,4) > c[2,3); d[5,9).  thread 1: e[3,8)
    start, end, thread = (
        np.array([0, 1, 2, 3, 5]),
        np.array([10, 4, 3, 8, 9]),
        np.array([0, 0, 0, 1, 0]),
    )
    assert nesting.parents(start, end, thread).tolist() == [-1, 0, 1, -1, 0]


def test_a_range_that_begins_inside_a_call_and_outlives_it_is_not_inside_it() -> None:
    # f[0, 90000) > enter[10, 5000); range[4000, 80000) begins in enter; op[6000, 7000)
    start = np.array([0, 10, 4000, 6000])
    end = np.array([90_000, 5000, 80_000, 7000])
    parent = nesting.parents(start, end, np.zeros(4))
    assert parent.tolist() == [-1, 0, 0, 2]
    time, span = nesting.innermost_segments(start, end, parent)
    assert list(zip(time.tolist(), span.tolist())) == [
        (0, 0), (10, 1), (4000, 2), (6000, 3), (7000, 2), (80_000, 0), (90_000, -1),
    ]  # fmt: skip


def test_a_child_that_outlives_its_parent_by_rounding_keeps_it() -> None:
    # Whole microseconds: the child of [0, 21) ends at 22.
    assert nesting.parents(np.array([0, 20]), np.array([21, 22]), np.array([0, 0])).tolist() == [
        -1,
        0,
    ]


@QUICK
@given(SPANS, st.integers(0, 2))
def test_parent_is_the_last_started_that_contains_the_span(
    spans: list[tuple[int, int, int]], rounding: int
) -> None:
    start, end, thread = sorted_columns(spans)
    expected = []
    for i in range(len(start)):
        around = [
            j
            for j in range(i)
            if thread[j] == thread[i] and end[j] > start[i] and end[j] + rounding >= end[i]
        ]
        expected.append(around[-1] if around else -1)
    assert nesting.parents(start, end, thread, rounding).tolist() == expected


@QUICK
@given(SPANS, st.data())
def test_nearest_and_inherited_minimum_walk_the_chain(
    spans: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    start, end, thread = sorted_columns(spans)
    n = len(start)
    matches = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool)
    value = np.array(data.draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)), np.int64)
    parent = nesting.parents(start, end, thread)
    found, least = nesting.nearest(parent, matches), nesting.inherited_minimum(parent, value)
    for i in range(n):
        chain, at = [], i
        while at >= 0:
            chain.append(at)
            at = int(parent[at])
        assert found[i] == next((j for j in chain if matches[j]), -1)
        assert least[i] == min(value[j] for j in chain)


def test_innermost_segments() -> None:
    # a[0,10) > b[1,4) > c[2,3); z is empty and at 5; d[6,9); then nothing
    start, end = np.array([0, 1, 2, 5, 6]), np.array([10, 4, 3, 5, 9])
    parent = nesting.parents(start, end, np.zeros(5))
    time, span = nesting.innermost_segments(start, end, parent)
    assert list(zip(time.tolist(), span.tolist())) == [
        (0, 0), (1, 1), (2, 2), (3, 1), (4, 0), (6, 4), (9, 0), (10, -1),
    ]  # fmt: skip


@QUICK
@given(SPANS)
def test_segments_agree_with_the_instant_by_instant_answer(
    spans: list[tuple[int, int, int]],
) -> None:
    start, end, _ = sorted_columns(spans)
    parent = nesting.parents(start, end, np.zeros(len(start)), 0)
    time, span = nesting.innermost_segments(start, end, parent, 0)
    assert (np.diff(time) > 0).all()
    for t in range(34):
        at = int(np.searchsorted(time, t, side="right")) - 1
        got = int(span[at]) if at >= 0 else -1
        running = [j for j in range(len(start)) if start[j] <= t < end[j]]
        assert got == (running[-1] if running else -1)


def test_depths_count_what_encloses() -> None:
    # a > b > c, a > d; e alone.
    assert nesting.depths(np.array([-1, 0, 1, 0, -1])).tolist() == [0, 1, 2, 1, 0]
    # A chain of nine: the rounds double.
    assert nesting.depths(np.arange(-1, 8)).tolist() == list(range(9))
    assert nesting.depths(np.array([], np.int64)).tolist() == []


def test_a_child_may_outlive_its_parent_by_the_rounding_and_no_more() -> None:
    start, thread = np.array([0, 100]), np.zeros(2, np.int64)
    rounding = nesting.ROUNDING_NS
    found = [
        nesting.parents(start, np.array([5000, 5000 + over]), thread).tolist()
        for over in (0, rounding, rounding + 1)
    ]
    assert found == [[-1, 0], [-1, 0], [-1, -1]]
    # A span that begins where another ends is not in it.
    assert nesting.parents(np.array([0, 10]), np.array([10, 12]), thread, 100).tolist() == [-1, -1]
