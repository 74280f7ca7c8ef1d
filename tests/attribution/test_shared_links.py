from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.attribution.shared_links import shared_ns

INTERVALS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 30)).map(lambda at: (at[0], at[0] + at[1])),
    min_size=1,
    max_size=12,
)


def of(*intervals: tuple[int, int]) -> list[float]:
    start, end = np.array(intervals, np.int64).T
    return shared_ns(start, end).tolist()


def test_what_runs_alone_counts_whole_and_what_runs_together_in_parts() -> None:
    assert of((0, 10), (20, 25)) == [10, 5]
    # [0, 4) alone, [4, 10) together, [10, 16) alone
    assert of((0, 10), (4, 16)) == [4 + 3, 3 + 6]
    assert of((0, 9), (0, 9), (0, 9)) == [3, 3, 3]


def test_what_has_no_length_counts_nothing() -> None:
    assert of((5, 5)) == [0]
    assert of((0, 10), (5, 5), (8, 3)) == [10, 0, 0]
    assert shared_ns(np.zeros(0), np.zeros(0)).tolist() == []


@given(INTERVALS)
def test_the_parts_add_up_to_the_time_in_which_any_runs(
    intervals: list[tuple[int, int]],
) -> None:
    covered = {moment for begin, end in intervals for moment in range(begin, end)}
    shares = of(*intervals)
    assert sum(shares) == pytest.approx(len(covered))
    for (begin, end), share in zip(intervals, shares, strict=True):
        assert 0 <= share <= end - begin + 1e-9
