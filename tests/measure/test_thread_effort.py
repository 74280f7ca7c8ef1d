"""What a thread did in its steps: counters given by hand."""

from __future__ import annotations

import gc
import threading
import time

import pytest

from gobrrr.measure import thread_effort
from gobrrr.measure.thread_effort import EffortOfSteps

MS = 1_000_000


class Thread:
    """Counters of one that works and sleeps as it is told."""

    def __init__(self) -> None:
        self.now, self.worked, self.waits, self.readings = 0, 0, 0, 0

    def read(self) -> tuple[int, int]:
        self.readings += 1
        return self.worked, 0

    def step(self, works: int, sleeps: int = 0) -> int:
        self.now += (works + sleeps) * MS
        self.worked += works * MS
        self.waits += sleeps > 0
        return (works + sleeps) * MS


def _slept(thread: Thread, *steps: tuple[int, int]) -> list[int | None]:
    efforts = EffortOfSteps()
    found: list[int | None] = []
    for i, (works, sleeps) in enumerate(steps):
        efforts.step_begins(first=i == 0)
        found += [each.slept_ns for each in efforts.of_step(thread.step(works, sleeps))]
    return found


def test_the_effort_of_a_thread_is_read_only_after_steps_in_which_it_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = Thread()
    monkeypatch.setattr(thread_effort, "effort_of", lambda _: thread)
    monkeypatch.setattr(thread_effort, "waits_of_thread", lambda: thread.waits)
    monkeypatch.setattr(thread_effort.time, "perf_counter_ns", lambda: thread.now)
    found = _slept(thread, (5, 0), (5, 0), (5, 3), (5, 0), (1, 7))
    assert found == [0, 0, 3 * MS, 0, 7 * MS]
    # At the start, and after the two.
    assert thread.readings == 3


def test_without_a_count_of_waits_the_effort_is_read_after_every_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = Thread()
    monkeypatch.setattr(thread_effort, "effort_of", lambda _: thread)
    monkeypatch.setattr(thread_effort, "waits_of_thread", lambda: None)
    monkeypatch.setattr(thread_effort.time, "perf_counter_ns", lambda: thread.now)
    assert _slept(thread, (5, 2), (5, 0)) == [2 * MS, 0]


def test_where_the_system_does_not_tell_no_sleep_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_effort, "effort_of", lambda _: None)
    assert _slept(Thread(), (5, 0)) == [None]


def test_a_pause_is_what_the_collector_runs_not_how_long_it_waits_for_a_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gc, "callbacks", [])  # a real pause would be another reading
    ran = iter((0, 10 * MS, 14 * MS, 20 * MS))
    efforts = EffortOfSteps()
    monkeypatch.setattr(thread_effort.time, "thread_time_ns", lambda: next(ran))
    efforts.step_begins(first=True)
    # Not collected for this test: another program has the processor for a second meanwhile.
    gc.callbacks[-1]("start", {})
    monkeypatch.setattr(thread_effort.time, "perf_counter_ns", lambda: 1000 * MS)
    gc.callbacks[-1]("stop", {})
    (paused,) = efforts.of_step(1000 * MS)
    assert (paused.paused_ns, paused.ran_ns) == (4 * MS, 20 * MS)


def test_pauses_are_those_of_the_step_and_nothing_stays_attached() -> None:
    watching = len(gc.callbacks)
    efforts = EffortOfSteps()
    assert efforts.of_step(5 * MS) == []
    efforts.step_begins(first=True)
    gc.collect()
    (paused,) = efforts.of_step(5 * MS)
    gc.collect()
    efforts.step_begins(first=False)
    (other,) = efforts.of_step(5 * MS)
    assert paused.paused_ns > 0
    assert paused.ran_ns > 0
    assert other.paused_ns == 0
    efforts.step_begins(first=False)
    efforts.stop()
    assert len(gc.callbacks) == watching


def test_a_thread_that_has_ended_is_not_taken_for_the_next_one() -> None:
    """Python gives its number to the next one."""
    efforts = EffortOfSteps()
    found: list[tuple[int, int]] = []

    def steps() -> None:
        found.append((len(efforts.of_step(5 * MS)), -1))
        for i in range(2):
            efforts.step_begins(first=i == 0)
            time.sleep(0.001)
            found[-1] = (found[-1][0], len(efforts.of_step(5 * MS)))
        efforts.step_begins(first=False)

    for _ in range(4):
        thread = threading.Thread(target=steps)
        thread.start()
        thread.join()
    efforts.stop()
    # A step that began in another thread tells nothing.
    assert found == [(0, 1)] * 4
