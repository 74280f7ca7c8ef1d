"""Turns and verdicts, with a clock that the steps themselves move."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from gobrrr.measure import FakeClock, Interval
from gobrrr.verification.timing import (
    EndOfSteps,
    Null,
    Side,
    Timed,
    alternate,
    clear_of,
    is_quiet,
    judge,
    null_of,
    take_turns,
)

MS = 1_000_000
QUIET = Null(Interval(1.0, 0.99, 1.01), True, 0.010)


def stepping(clock: FakeClock, lengths_ns: list[int], calls: list[str], name: str) -> Side:
    cycle = itertools.cycle(lengths_ns)

    def step() -> None:
        calls.append(name)
        clock.advance(next(cycle))

    return Side(step)


def turns(before_ns: list[int], after_ns: list[int], budget_s: float = 1.0) -> Timed:
    clock = FakeClock()
    calls: list[str] = []
    return take_turns(
        stepping(clock, before_ns, calls, "A"), stepping(clock, after_ns, calls, "B"),
        budget_s=budget_s, enough=is_quiet, clock=clock,
    )  # fmt: skip


def test_who_goes_first_alternates() -> None:
    clock = FakeClock()
    calls: list[str] = []
    take_turns(
        stepping(clock, [100 * MS], calls, "A"), stepping(clock, [100 * MS], calls, "B"),
        budget_s=1.1, enough=lambda ratio: False, clock=clock,
    )  # fmt: skip
    # One call each to learn the length (0.2 s), then pairs of 0.2 s until a fifth would not fit.
    assert "".join(calls) == "AB" + "ABBA" * 2


def test_a_turn_holds_as_many_steps_as_fill_it_on_its_side() -> None:
    timed = turns([10 * MS], [5 * MS])
    assert timed.before_s == pytest.approx(0.010)
    assert timed.after_s == pytest.approx(0.005)
    assert timed.ratio.median == pytest.approx(2.0)


def test_two_pairs_are_taken_whatever_the_budget() -> None:
    assert len(turns([3000 * MS], [3000 * MS], budget_s=0.001).before) == 2


def test_settings_are_switched_outside_the_time() -> None:
    clock = FakeClock()
    side = Side(lambda: clock.advance(MS), enter=lambda: clock.advance(77 * MS))
    timed = take_turns(side, side, budget_s=5.0, enough=is_quiet, clock=clock)
    assert all(seconds == pytest.approx(0.001) for seconds in timed.before + timed.after)


def test_a_side_that_ends_leaves_whole_pairs() -> None:
    left = iter([0.010] * 5)

    def limited() -> float:
        try:
            return next(left)
        except StopIteration:
            raise EndOfSteps from None

    timed = alternate(lambda: 0.020, limited, budget_s=1e9, enough=lambda ratio: False,
                      clock=FakeClock())  # fmt: skip
    assert timed == Timed((0.020,) * 5, (0.010,) * 5)


def test_a_null_is_quiet_only_near_one_and_narrow() -> None:
    assert is_quiet(Interval(1.0, 0.98, 1.02))
    assert not is_quiet(Interval(1.03, 1.02, 1.04))
    assert not is_quiet(Interval(1.0, 0.97, 1.03))


def test_steps_that_jump_make_a_noisy_null() -> None:
    null = null_of(turns([10 * MS, 30 * MS, 17 * MS], [10 * MS, 14 * MS], budget_s=0.5))
    assert not null.quiet
    assert "too noisy" in null.sentence


def pairs(ratio: float, n: int = 12) -> Timed:
    return Timed((0.010 * ratio,) * n, (0.010,) * n)


@pytest.mark.parametrize(
    ("timed", "null", "light_s", "verdict"),
    [
        (pairs(1.2), QUIET, None, "faster"),
        (pairs(1.0), QUIET, None, "same"),
        # Inside the null's own interval, however narrow its own is.
        (pairs(1.008), QUIET, None, "same"),
        (pairs(0.8), QUIET, None, "slower"),
        # A null that lies above 1 moves the bar up, not down.
        (pairs(1.015), Null(Interval(1.01, 1.0, 1.02), True, 0.01), None, "same"),
        (pairs(0.985), Null(Interval(1.01, 1.0, 1.02), True, 0.01), None, "slower"),
        # A narrow null: one percent is the least that counts.
        (pairs(1.008), Null(Interval(1.0, 0.999, 1.001), True, 0.01), None, "same"),
        (pairs(1.3), Null(Interval(1.0, 0.9, 1.1), False, 0.01), None, "incomparable"),
        (pairs(1382.0), QUIET, 0.5, "eliminated_work"),
        (pairs(1.2), QUIET, 0.0095, "faster"),
    ],
)
def test_verdicts(timed: Timed, null: Null, light_s: float | None, verdict: str) -> None:
    assert judge(timed, null, light_s)[0] == verdict


def test_the_whole_interval_must_lie_outside_the_null() -> None:
    mixed = Timed((0.0105, 0.0095) * 10, (0.010,) * 20)
    assert judge(mixed, QUIET)[0] == "same"


@pytest.mark.parametrize(
    ("ratio", "enough"),
    [
        (Interval(1.5, 1.49, 1.51), True),
        (Interval(1.5, 1.2, 1.8), False),
        (Interval(1.0, 0.995, 1.005), True),
        (Interval(1.03, 1.005, 1.045), False),
    ],
)
def test_measuring_goes_on_until_it_is_clear(ratio: Interval, enough: bool) -> None:
    clear: Callable[[Interval], bool] = clear_of(QUIET)
    assert clear(ratio) is enough


def test_a_noisy_null_hides_small_changes_and_not_large_ones() -> None:
    # Reaches 1.1, so that a change must lie beyond 1.1 ** 3 = 1.331 or under 0.751.
    null = Null(Interval(1.0, 0.95, 1.1), False, 1.0)
    turns = Timed((1.0,), (1.0,))

    def verdict(median: float, low: float, high: float) -> str:
        return judge(turns, null, ratio=Interval(median, low, high))[0]

    assert verdict(1.4, 1.34, 1.5) == "faster"
    assert verdict(1.4, 1.32, 1.5) == "incomparable"
    assert verdict(1.0, 0.99, 1.01) == "incomparable"
    assert verdict(0.7, 0.65, 0.74) == "slower"
