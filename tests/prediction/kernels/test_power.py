"""The clock that a board's power leaves: the power drawn at it is the board's."""

from __future__ import annotations

import numpy as np
import pytest

from gobrrr.prediction.kernels.architectures import of_architecture
from gobrrr.prediction.kernels.coefficients import coefficients_of
from gobrrr.prediction.kernels.power import clock_share, static_w, vector_product_clock_shares
from gobrrr.prediction.kernels.target import target_device

L4 = target_device("L4")
JOULES = 1e-12


def drawn_w(rate: float, share: float) -> float:
    """What arithmetic draws at a share of the clock, whose voltage falls to 0.62 at 0.45 of it."""
    voltage = 0.62 + 0.38 * max(0.0, share - 0.45) / 0.55
    return JOULES * rate * share * voltage**2


@pytest.mark.parametrize("over", [1.0001, 1.1, 2.0, 5.0, 40.0])
def test_at_its_clock_a_board_draws_what_it_may(over: float) -> None:
    assert L4.sheet is not None
    assert L4.sheet.board_power_w is not None
    left_w = L4.sheet.board_power_w.value - static_w(L4.sheet.board_power_w.value)
    rate = over * left_w / JOULES
    share = clock_share(L4, JOULES, rate)
    assert 0 < share < 1
    assert drawn_w(rate, share) == pytest.approx(left_w, rel=1e-6)


def test_a_board_with_power_to_spare_keeps_its_clock() -> None:
    assert clock_share(L4, JOULES, 1e12) == 1.0
    assert clock_share(L4, None, 1e18) == 1.0


def test_one_product_or_many_have_the_same_clock() -> None:
    c = coefficients_of(L4.sheet)
    flops, seconds = 1e12, np.array([1e-1, 4e-2, 2e-2])
    found = vector_product_clock_shares(L4, c, np.full(3, flops), seconds, np.zeros(3), np.zeros(3))
    alone = [clock_share(L4, c.float32_energy_j, flops / each) for each in seconds]
    assert found.tolist() == pytest.approx(alone, rel=1e-7)
    assert found[0] > found[2]


def test_an_architecture_takes_the_constant_of_the_longest_name() -> None:
    constants = {"Ampere": 1, "Ampere GA10x": 2}
    assert of_architecture(constants, "Ampere GA10x half-rate") == 2
    assert of_architecture(constants, "Ampere GA100") == 1
    assert of_architecture(constants, "Ada") is None
