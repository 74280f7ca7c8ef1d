"""How sure a difference in pairs is, of steps that resemble the ones before them."""

from __future__ import annotations

import numpy as np
import pytest

from gobrrr.ranks.paired import Float64, repeated, sure_of_pairs

COUNT = 24


def _following(random: np.random.Generator, share: float) -> Float64:
    """Each value holds a share of the one before it."""
    values = random.normal(size=COUNT + 20)
    for i in range(1, len(values)):
        values[i] = share * values[i - 1] + np.sqrt(1 - share**2) * values[i]
    return values[20:]


def test_chance_is_taken_for_a_difference_as_often_as_it_should_be() -> None:
    random = np.random.default_rng(5)
    sure = [sure_of_pairs(random.normal(size=COUNT)) for _ in range(4000)]
    # Of a normal distribution 2.3 % are above 2; where little is told by so few, a little more.
    assert 0.015 < np.mean(np.array(sure) > 2) < 0.04
    assert np.mean(np.array(sure) > 3) < 0.005


def test_values_that_resemble_the_one_before_count_for_fewer() -> None:
    random = np.random.default_rng(7)
    many = [_following(random, 0.6) for _ in range(2000)]
    sure = np.array([sure_of_pairs(values) for values in many])
    # One in sixteen is above 3 where each counts as one.
    assert np.mean(sure > 3) < 0.03
    assert np.mean([repeated(values) for values in many]) > 1.6
    apart = [repeated(random.normal(size=COUNT)) for _ in range(500)]
    assert np.mean(apart) < 1.2


@pytest.mark.parametrize("count", [12, 16, 40])
def test_a_difference_in_every_step_is_sure_and_a_few_disturbed_ones_do_not_hide_it(
    count: int,
) -> None:
    random = np.random.default_rng(count)
    values = 5 + random.normal(size=count)
    assert sure_of_pairs(values) > 3
    values[: count // 8] -= 1000
    assert sure_of_pairs(values) > 3
    assert sure_of_pairs(-values) == pytest.approx(-sure_of_pairs(values))


def test_nothing_and_the_same_in_every_step() -> None:
    assert sure_of_pairs(np.zeros(12)) == 0
    assert sure_of_pairs(np.array([3.0])) == 0
    assert 3 < sure_of_pairs(np.full(12, 7.0)) < 100
