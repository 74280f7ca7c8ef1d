from __future__ import annotations

import pytest

from gobrrr.measure import FakeClock, Series, time_in_turns, time_interleaved, warm_up


class Work:
    """Advances a clock by the durations given, the last one for ever."""

    def __init__(self, clock: FakeClock, log: list[str], name: str, *durations_ns: int) -> None:
        self.clock, self.log, self.name = clock, log, name
        self.durations_ns = list(durations_ns)

    def __call__(self) -> None:
        self.log.append(self.name)
        first = self.durations_ns[0]
        if len(self.durations_ns) > 1:
            self.durations_ns.pop(0)
        self.clock.advance(first)


def test_warm_up_goes_on_until_calls_take_the_same_time() -> None:
    clock, log = FakeClock(), list[str]()
    # Pairs' minima: call 4 (900 500 | 120 100) 500, 100; call 5 (500 120 | 100 100) 120, 100;
    # call 6 (120 100 | 100 100) 100, 100: settled.
    last_s, settled = warm_up(Work(clock, log, "a", 900, 500, 120, 100), clock=clock)
    assert (last_s, settled) == (pytest.approx(100e-9), True)
    assert len(log) == 6


def test_warm_up_gives_up_and_says_so() -> None:
    clock = FakeClock()
    growing = Work(clock, [], "a", *(1000 * 2**k for k in range(40)))
    assert warm_up(growing, clock=clock, most=10, limit_s=1e9)[1] is False


def test_warm_up_stops_at_its_time_limit() -> None:
    clock, log = FakeClock(), list[str]()
    slow = Work(clock, log, "a", 3_000_000_000, 1_000_000_000, 2_000_000_000)
    assert warm_up(slow, clock=clock, limit_s=5.0)[1] is False
    assert len(log) == 3  # 3 + 1 + 2 = 6 s


def test_callables_take_turns() -> None:
    clock, log = FakeClock(), list[str]()
    calls = {"a": Work(clock, log, "a", 100), "b": Work(clock, log, "b", 300)}
    series = time_interleaved(calls, rounds=3, clock=clock)
    assert log[-6:] == ["a", "b"] * 3
    assert series["a"].seconds == pytest.approx((100e-9,) * 3)
    assert series["b"].seconds == pytest.approx((300e-9,) * 3)
    assert series["a"].settled
    assert series["b"].settled


def test_short_calls_are_repeated_to_fill_a_block() -> None:
    clock, log = FakeClock(), list[str]()
    series = time_interleaved(
        {"a": Work(clock, log, "a", 100)}, rounds=2, block_s=1e-6, clock=clock
    )
    # 1000 ns / 100 ns = 10 calls in each of 2 rounds, after 4 of warm-up
    assert len(log) == 4 + 20
    assert series["a"].seconds == pytest.approx((100e-9,) * 2)


def test_time_spent_in_sync_counts() -> None:
    clock = FakeClock()
    pending = [0]

    def launch() -> None:
        clock.advance(10)
        pending[0] += 90

    def sync() -> None:
        clock.advance(pending[0])
        pending[0] = 0

    series = time_interleaved({"a": launch}, rounds=1, clock=clock, sync=sync)
    assert series["a"].seconds == pytest.approx((100e-9,))


def test_refuses_nothing_to_do() -> None:
    with pytest.raises(ValueError, match="nothing to time"):
        time_interleaved({}, rounds=1)
    with pytest.raises(ValueError, match="rounds"):
        time_interleaved({"a": lambda: None}, rounds=0)


def test_series_summary_and_best() -> None:
    series = Series((3.0, 1.0, 2.0), settled=True)
    assert series.best_s == 1.0
    assert series.summary().median == 2.0


def test_clock_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="does not go back"):
        FakeClock().advance(-1)


def test_two_callables_of_different_length_take_turns() -> None:
    clock, log = FakeClock(), list[str]()
    # 1 call each to warm up; then rounds of 100 + 200 ms until 2 s are over: 7.
    once = Work(clock, log, "a", 900_000_000, 100_000_000)
    twice = Work(clock, log, "b", 900_000_000, 200_000_000)
    found = time_in_turns(once, twice, clock=clock)
    assert found == ([100_000_000] * 7, [200_000_000] * 7)
    assert log == ["a", "b"] * 8


def test_turns_are_five_at_least_and_a_hundred_at_most_within_the_limit() -> None:
    clock = FakeClock()
    long, short = Work(clock, [], "a", 3_000_000_000), Work(clock, [], "b", 1)
    assert [len(taken) for taken in time_in_turns(long, long, clock=clock)] == [5, 5]
    assert [len(taken) for taken in time_in_turns(short, short, clock=clock)] == [100, 100]
    # A round takes 16 s: none begins after the second, at 32 s.
    slow = Work(clock, [], "c", 8_000_000_000)
    assert [len(taken) for taken in time_in_turns(slow, slow, clock=clock)] == [2, 2]
