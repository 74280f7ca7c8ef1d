from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.measure import Interval, Summary, ratio_interval, summarise


def test_small_samples_have_their_extremes_as_interval() -> None:
    # Five samples: P(all on one side of the median) = 2 * 2**-5 = 6.25 %, more than 5 %.
    assert summarise([3.0, 1.0, 2.0, 5.0, 9.0]) == Summary(3.0, 4.0, 1.0, 9.0, 5)


def test_order_statistics_of_twenty_samples() -> None:
    # binomial(20, 1/2): P(X <= 5) = 21700 / 2**20 = 2.07 %, P(X <= 6) = 5.77 %; so the interval
    # runs from the sixth smallest to the sixth largest.
    summary = summarise([float(value) for value in range(1, 21)])
    assert (summary.low, summary.high) == (6.0, 15.0)
    assert (summary.median, summary.mean, summary.n) == (10.5, 10.5, 20)


def test_six_samples_reach_95_percent_with_their_extremes() -> None:
    # 2 * 2**-6 = 3.1 %
    summary = summarise([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert (summary.low, summary.high) == (1.0, 6.0)


def test_nine_samples_leave_out_one_at_each_end() -> None:
    # P(X <= 1) = 10 / 512 = 1.95 %, P(X <= 2) = 46 / 512 = 9 %
    summary = summarise([float(value) for value in range(9)])
    assert (summary.low, summary.high) == (1.0, 7.0)


def test_one_sample() -> None:
    assert summarise([2.5]) == Summary(2.5, 2.5, 2.5, 2.5, 1)


@pytest.mark.parametrize("bad", [[], [math.nan], [1.0, math.inf]])
def test_refuses_what_has_no_median(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="sample"):
        summarise(bad)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60))
def test_interval_holds_the_median_and_ignores_order(samples: list[float]) -> None:
    summary = summarise(samples)
    assert min(samples) <= summary.low <= summary.median <= summary.high <= max(samples)
    assert summarise(samples[::-1]) == summary


def test_many_samples_do_not_underflow() -> None:
    # n = 10000: rank about n/2 - 1.96 * sqrt(n)/2 = 4902
    summary = summarise([float(value) for value in range(10_000)])
    assert 4895 < summary.low < 4905
    assert summary.high == 9999 - summary.low


def test_ratio_of_pairs_cancels_what_both_share() -> None:
    load = [1.0, 1.3, 5.0, 1.1, 0.9, 2.0]
    assert ratio_interval([2 * x for x in load], load) == Interval(2.0, 2.0, 2.0)


def test_ratio_interval_is_the_same_every_time_and_holds_its_median() -> None:
    a = [1.0, 1.1, 0.9, 1.05, 1.2, 0.95, 1.0, 1.02]
    b = [1.0, 1.0, 1.0, 1.1, 1.0, 1.0, 0.9, 1.0]
    first = ratio_interval(a, b)
    assert first == ratio_interval(a, b)
    assert first.low <= first.median <= first.high
    assert first.low < first.high


@pytest.mark.parametrize(
    ("a", "b"),
    [([], []), ([1.0], [1.0, 2.0]), ([1.0], [0.0]), ([-1.0], [1.0]), ([1.0], [math.nan])],
)
def test_ratio_refuses_what_cannot_be_divided(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError):
        ratio_interval(a, b)
