"""Turns and verdicts, with a clock that the steps themselves move."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from gobrrr.measure import FakeClock, Interval
from gobrrr.measure.noise import is_quiet
from gobrrr.verification.alternation import InKernel, by_page_faults
from gobrrr.verification.timing import (
    EndOfSteps,
    Null,
    Side,
    Timed,
    alternate,
    clear_of,
    judge,
    null_of,
    take_turns,
    undecided_by,
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


def test_processes_that_differ_by_page_faults_are_said_to() -> None:
    # Steps of 20 ms: 8 more in the kernel make a null noisy, 1 does not.
    kept, returned = InKernel(0.020, 0.001, 0.2), InKernel(0.030, 0.009, 11_600.0)
    cause = by_page_faults([kept, returned, kept])
    assert cause == "because its processes take 0 to 11,600 page faults a step"
    null = Null(Interval(0.7, 0.6, 0.8), False, 0.02, cause)
    assert null.sentence.endswith(f"0.700x (0.600 to 0.800), {cause}")
    assert by_page_faults([kept, InKernel(0.030, 0.002, 11_600.0)]) == ""
    # It is not the slower one.
    assert by_page_faults([kept, InKernel(0.019, 0.009, 11_600.0)]) == ""
    assert by_page_faults([kept, kept]) == by_page_faults([kept]) == ""


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
        (pairs(0.975), Null(Interval(1.01, 1.0, 1.02), True, 0.01), None, "slower"),
        # A narrow null: two per cent, which a quiet program may lie from itself, is the least.
        (pairs(1.018), Null(Interval(1.0, 0.999, 1.001), True, 0.01), None, "same"),
        (pairs(1.04), Null(Interval(1.0, 0.9, 1.1), False, 0.01), None, "incomparable"),
        (pairs(1.3), Null(Interval(1.0, 0.9, 1.1), False, 0.01), None, "faster"),
        (pairs(1382.0), QUIET, 0.5, "eliminated_work"),
        # 10 ms of a light of 10.5 and 10.6: within the 5 % that a ceiling may be off, and beyond.
        (pairs(1.2), QUIET, 0.0105, "faster"),
        (pairs(1.2), QUIET, 0.0106, "eliminated_work"),
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


def verdict_on(median: float, low: float, high: float, null: Null, n: int = 12) -> str:
    return judge(pairs(1.0, n), null, ratio=Interval(median, low, high))[0]


def test_a_noisy_null_hides_small_changes_and_not_large_ones() -> None:
    # Its median is 1.1 from 1: the whole interval of a change must lie above that or below 1 / 1.1.
    null = Null(Interval(1.1, 0.9, 1.6), False, 1.0)
    assert verdict_on(1.4, 1.12, 1.7, null) == "faster"
    assert verdict_on(1.4, 1.08, 1.7, null) == "incomparable"
    assert verdict_on(1.0, 0.99, 1.01, null) == "incomparable"
    assert verdict_on(0.7, 0.65, 0.9, null) == "slower"
    # Two copies that differ by 1.2 for certain: two others may by 1.44.
    apart = Null(Interval(1.2, 1.1, 1.3), False, 1.0)
    assert verdict_on(1.6, 1.45, 1.7, apart) == "faster"
    assert verdict_on(1.6, 1.43, 1.7, apart) == "incomparable"
    # What the program differs from itself by, for certain, is no speedup.
    apart = Null(Interval(0.965, 0.787, 0.971), False, 1.0)
    assert verdict_on(1.4, 1.28, 1.5, apart) == "faster"
    assert verdict_on(1.4, 1.25, 1.5, apart) == "incomparable"
    # One that is near 1 and wide lets no change pass that the widest quiet one would not.
    assert verdict_on(1.05, 1.04, 1.06, Null(Interval(1.0, 0.9, 1.1), False, 1.0)) == "incomparable"


def test_few_pairs_have_to_show_more() -> None:
    # 1.1 ** 3 = 1.331
    null = Null(Interval(1.0, 0.95, 1.1), False, 1.0)
    assert verdict_on(1.3, 1.2, 1.4, null, n=6) == "faster"
    assert verdict_on(1.3, 1.2, 1.4, null, n=5) == "incomparable"
    assert verdict_on(1.4, 1.34, 1.5, null, n=2) == "faster"
    repeated = judge(pairs(1.0, 2), null, ratio=Interval(1.3, 1.2, 1.4), repeats=True)
    assert repeated[0] == "faster"


def test_what_looks_like_a_change_is_measured_on() -> None:
    undecided = undecided_by(QUIET)
    assert undecided(Interval(1.1, 0.9, 1.3), 12)
    assert undecided(Interval(0.9, 0.8, 1.1), 12)
    assert not undecided(Interval(1.1, 1.05, 1.3), 12)
    assert undecided(Interval(1.1, 1.05, 1.3), 3)
    assert not undecided(Interval(1.0, 0.8, 1.2), 3)


@pytest.mark.parametrize(("answer", "rounds"), [(False, 2), (True, 8)])
def test_an_undecided_ratio_gets_four_budgets(answer: bool, rounds: int) -> None:
    clock = FakeClock()

    def turn() -> float:
        clock.advance(500 * MS)
        return 0.5

    timed = alternate(turn, turn, budget_s=2.1, enough=lambda ratio: False, clock=clock,
                      undecided=lambda ratio, pairs: answer)  # fmt: skip
    assert len(timed.before) == rounds
