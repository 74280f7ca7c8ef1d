"""Timing in turns, and the arithmetic on samples."""

from __future__ import annotations

import pytest

from gobrrr.lab.setting import LEAST_ROUNDS, Setting, crossing, ratio_of
from gobrrr.measure import FakeClock, Series


def test_every_callable_gets_the_same_rounds_in_turns() -> None:
    clock = FakeClock()
    order: list[str] = []

    def call(name: str, took_ns: int) -> object:
        def run() -> None:
            order.append(name)
            clock.advance(took_ns)

        return run

    setting = Setting(clock=clock)
    timed = setting.time_in_turns(
        {"a": call("a", 1_000_000), "b": call("b", 3_000_000)},  # type: ignore[dict-item]
        seconds=0.0,
    )
    assert timed["a"].seconds == (pytest.approx(1e-3),) * LEAST_ROUNDS
    assert timed["b"].seconds == (pytest.approx(3e-3),) * LEAST_ROUNDS
    assert order[-2 * LEAST_ROUNDS :] == ["a", "b"] * LEAST_ROUNDS
    assert ratio_of(timed["b"], timed["a"]) == pytest.approx((3.0, 3.0, 3.0))


def test_rounds_fill_the_time() -> None:
    clock = FakeClock()
    setting = Setting(clock=clock)
    timed = setting.time_in_turns({"a": lambda: clock.advance(10_000_000)}, seconds=0.3)
    # 10 ms each: the round in which 0.3 s are passed is the last.
    assert len(timed["a"].seconds) in (30, 31)


def test_the_budget_runs_down() -> None:
    clock = FakeClock()
    setting = Setting(clock=clock, budget_s=2.0, started_ns=clock.now_ns())
    clock.advance(1_500_000_000)
    assert setting.left_s == pytest.approx(0.5)


def test_a_crossing_lies_on_the_line_between_two_points() -> None:
    # In log-log, 1 -> 4 from x = 2 to x = 8 passes 2 half way: x = 4.
    assert crossing([1.0, 2.0, 8.0], [1.0, 1.0, 4.0], 2.0) == pytest.approx(4.0)
    assert crossing([1.0, 2.0], [1.0, 1.0], 2.0) is None
    assert crossing([1.0, 2.0], [3.0, 4.0], 2.0) == 1.0


def test_ratios_pair_samples() -> None:
    slow, fast = Series((2.0, 4.0, 6.0), True), Series((1.0, 2.0, 3.0), True)
    assert ratio_of(slow, fast) == (2.0, 2.0, 2.0)
