from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.attribution.shared_links import shared_ns

TRANSFERS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 30), st.integers(0, 9)),
    min_size=1,
    max_size=12,
)


def of(*transfers: tuple[float, float, float]) -> list[float]:
    """Of transfers as (start, end, amount), in units of 10 us."""
    start, end, amount = np.array(transfers, np.float64).T
    return (shared_ns(start * 1e4, end * 1e4, amount) / 1e4).tolist()


def test_what_runs_alone_counts_whole_and_what_runs_together_by_what_it_carries() -> None:
    assert of((0, 10, 7), (20, 25, 1)) == [10, 5]
    # One stretch of 16, of which a quarter of the amount is the first one's.
    assert of((0, 10, 1), (4, 16, 3)) == [4, 12]
    # The second joins the first with the third.
    assert of((0, 10, 2), (8, 22, 2), (20, 30, 2)) == [10, 10, 10]


def test_the_order_in_which_they_are_given_does_not_matter() -> None:
    assert of((20, 25, 1), (4, 16, 3), (0, 10, 1)) == [5, 12, 4]


def test_where_nothing_is_carried_all_count_alike_and_no_length_counts_nothing() -> None:
    assert of((0, 9, 0), (0, 9, 0), (0, 9, 0)) == [3, 3, 3]
    assert of((5, 5, 1)) == [0]
    assert shared_ns(np.zeros(0), np.zeros(0), np.zeros(0)).tolist() == []


def test_what_overlaps_by_the_clocks_grain_came_one_after_the_other() -> None:
    assert of((0, 10, 1), (9.99, 20, 9)) == [10, pytest.approx(10.01)]


@given(TRANSFERS)
def test_the_parts_add_up_to_the_time_in_which_any_runs(
    transfers: list[tuple[int, int, int]],
) -> None:
    intervals = [(start, start + length) for start, length, _ in transfers]
    covered = {moment for begin, end in intervals for moment in range(begin, end)}
    shares = of(*((*at, n) for at, (*_, n) in zip(intervals, transfers, strict=True)))
    assert sum(shares) == pytest.approx(len(covered))
    assert min(shares) >= 0
