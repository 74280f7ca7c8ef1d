"""The phases, driven by a fake clock: no profiler, no torch, exact lengths."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from gobrrr.live import warm_up
from gobrrr.live.measurements import Measurements, Plan, settled
from gobrrr.live.profiles.profile import RawEvents
from gobrrr.live.session import DONE, PROFILE, RECORD, SAMPLE, TIME, WARMUP, Session
from gobrrr.measure.load import Load, LoadReading
from gobrrr.observe.sampler import LineSample
from gobrrr.timeline.errors import UserCodeError

MS = 1_000_000


@dataclass
class FakeClock:
    now_ns: int = 0

    def __call__(self) -> int:
        return self.now_ns


@dataclass
class FakeProfiler:
    clock: FakeClock
    marks: list[int] = field(default_factory=list)
    running: bool = False
    interrupted: bool = False

    def start(self) -> None:
        self.running = True
        self.mark()

    def mark(self) -> None:
        self.marks.append(self.clock.now_ns)

    def stop(self) -> list[RawEvents]:
        self.running = False
        empty = np.empty(0, np.int64)
        return [
            RawEvents((), empty, empty, empty.astype(np.int32), empty.astype(np.int32),
                      empty.astype(bool), end - begin)
            for begin, end in zip(self.marks, self.marks[1:])
        ]  # fmt: skip

    def step_starts_ns(self) -> list[int]:
        return self.marks

    def abandon(self) -> None:
        self.running = False


class FakeRecorder:
    def start(self) -> None: ...

    def stop(self) -> list[Any]:
        return []


@dataclass
class FakeSampler:
    thread: int

    def start(self) -> None: ...

    def stop(self) -> list[LineSample]:
        return []


def make(plan: Plan, clock: FakeClock) -> tuple[Session, list[FakeProfiler]]:
    made: list[FakeProfiler] = []

    def profiler() -> FakeProfiler:
        made.append(FakeProfiler(clock))
        return made[-1]

    session = Session(
        plan, clock=clock, make_recorder=lambda roots: FakeRecorder(), make_profiler=profiler,
        make_sampler=FakeSampler,
    )  # fmt: skip
    return session, made


def run(session: Session, clock: FakeClock, lengths_ms: list[int]) -> list[str]:
    phases = []
    session.boundary("test")
    for length in lengths_ms:
        phases.append(session.phase)
        clock.now_ns += length * MS
        session.boundary("test")
    return phases


def test_every_phase_gets_its_steps_and_no_other() -> None:
    clock = FakeClock()
    session, profilers = make(Plan(warmup=2, steps=4, profiled=3), clock)
    phases = run(session, clock, [10] * 17)
    # 2 warm-up, 2 timed, 1 recorded + 1 let pass, 1 + 3 profiled, 1 + 2 sampled, 2 timed.
    assert (
        phases
        == [WARMUP] * 2
        + [TIME] * 2
        + [RECORD] * 2
        + [PROFILE] * 4
        + [SAMPLE] * 3
        + [TIME] * 2
        + [DONE] * 2
    )
    assert session.done
    assert len(session.result.profiled) == 3
    assert [step.length_ns for step in session.result.profiled] == [10 * MS] * 3
    assert not any(profiler.running for profiler in profilers)


def test_two_steps_are_recorded_where_two_are_to_be_compared() -> None:
    clock = FakeClock()
    session, _ = make(Plan(warmup=2, steps=4, profiled=3, recorded=2), clock)
    phases = run(session, clock, [10] * 9)
    assert phases == [WARMUP] * 2 + [TIME] * 2 + [RECORD] * 3 + [PROFILE] * 2
    assert len(session.result.recorded_steps) == 2


def test_a_program_that_ends_while_it_is_timed_has_its_lines_by_then() -> None:
    clock = FakeClock()
    session, _ = make(Plan(warmup=2, steps=100, profiled=3), clock)
    run(session, clock, [10] * 40)
    session.salvage()
    assert session.phase == TIME
    assert len(session.result.sampled) == 2


def test_a_step_that_fails_while_it_is_sampled_is_timed_on_and_sampled_no_more() -> None:
    clock = FakeClock()
    session, _ = make(Plan(warmup=2, steps=4, profiled=1), clock)
    while session.phase != SAMPLE:
        run(session, clock, [10])
    assert session.go_on_without("ValueError: mine")
    phases = run(session, clock, [10] * 10)
    assert session.done and SAMPLE not in phases
    assert len(session.result.all_plain_ns) == 4
    assert "sampling failed (ValueError: mine)" in " ".join(session.result.notices)


def test_plain_steps_are_timed_without_what_gobrrr_does_between_them() -> None:
    clock = FakeClock()

    def slow_progress(phase: str, done: int, wanted: int) -> None:
        clock.now_ns += 1000 * MS

    session, _ = make(Plan(warmup=1, steps=4, profiled=1), clock)
    session._on_phase = slow_progress
    run(session, clock, [7] * 13)
    assert session.result.all_plain_ns == [7 * MS] * 4


def test_warm_up_lasts_until_three_steps_agree() -> None:
    clock = FakeClock()
    session, _ = make(Plan(), clock)
    phases = run(session, clock, [900, 300, 120, 100, 101, 99, 100])
    # The last three of 120, 100, 101 differ by 20 %; 100, 101, 99 by 2 %.
    assert phases.count(WARMUP) == 6


def test_steps_that_never_agree_are_warm_once_they_get_no_shorter() -> None:
    # A busy machine: every other step takes three times as long.
    restless = [10, 30] * 6
    assert not any(settled(restless[:count]) for count in range(3, 12))
    assert settled(restless)
    # Medians of 80 and 40 ms, then of 40 and 40 ms.
    falling = [90, 70, 80, 90, 70, 80, 50, 30, 40, 50, 30, 40]
    assert not settled(falling)
    assert settled([*falling, 50, 30, 40, 50, 30, 45])


def test_seconds_of_compiling_do_not_end_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = iter([0.0, 1.0, *[1.0] * 20])
    monkeypatch.setattr(warm_up, "graphs_compiled", lambda: next(graphs))
    clock = FakeClock()
    session, _ = make(Plan(), clock)
    phases = run(session, clock, [9000, 40, 30, 20, 20, 20, 20])
    assert phases.count(WARMUP) == 6
    # Of a program that compiles in each step some have to do.
    graphs = iter(map(float, range(50)))
    clock = FakeClock()
    session, _ = make(Plan(), clock)
    assert run(session, clock, [9000] * 6).count(WARMUP) == 4
    # Steps that are long themselves end it: 3 of 3 s.
    graphs = iter([0.0] * 50)
    session, _ = make(Plan(), FakeClock())
    phases = run(session, session._clock, [4000, 3000, 2500, 2000])  # type: ignore[arg-type]
    assert phases.count(WARMUP) == 3


def test_a_changed_step_starts_over_and_stops_what_was_running() -> None:
    clock = FakeClock()
    session, profilers = make(Plan(warmup=1, steps=2, profiled=2), clock)
    run(session, clock, [10] * 5)
    assert session.phase == PROFILE
    session.restart()
    assert session.phase == WARMUP
    assert session.result.all_plain_ns == []
    assert not profilers[-1].running


def test_a_program_that_ends_while_profiled_keeps_the_steps_profiled_so_far() -> None:
    clock = FakeClock()
    session, profilers = make(Plan(warmup=1, steps=2, profiled=5), clock)
    # 1 warm-up, 2 recorded, 1 timed, then 4 of the 1 + 5 to be profiled.
    run(session, clock, [10] * 8)
    assert session.phase == PROFILE
    session.salvage()
    session.abandon()
    assert len(session.result.profiled) == 3
    assert not profilers[-1].running


def steps_until_done(length_s: float) -> tuple[int, Session]:
    clock = FakeClock()
    session, _ = make(Plan(), clock)
    session.boundary("test")
    count = 0
    while not session.done:
        clock.now_ns += int(length_s * 1000) * MS
        count += 1
        session.boundary("test")
    return count, session


def test_long_steps_are_repeated_within_a_budget_of_time() -> None:
    # Three seconds: 2 warm up, 1 recorded, 1 timed, 1 profiled, 1 timed, 1 sampled.
    count, session = steps_until_done(3.0)
    assert count == 7
    assert len(session.result.all_plain_ns) == 2
    assert len(session.result.profiled) == 1
    # Twenty: 1 warm-up, 1 recorded, 1 timed, 1 profiled, 1 timed; no lines are sampled.
    count, session = steps_until_done(20.0)
    assert count == 5
    assert len(session.result.sampled) == 0
    (notice,) = session.result.notices
    assert "2 timed" in notice
    assert "1 profiled" in notice


def test_short_steps_are_measured_as_often_as_ever() -> None:
    _, session = steps_until_done(0.05)
    # 1.2 s of them in each of two blocks, seven profiled after one that pays for the start.
    assert len(session.result.all_plain_ns) == 48
    assert len(session.result.profiled) == 7
    assert len(session.result.sampled) == 2
    assert session.result.notices == []


def on_the_real_clock() -> Session:
    return Session(
        Plan(warmup=1, steps=4, profiled=2),
        make_recorder=lambda roots: FakeRecorder(),
        make_profiler=lambda: FakeProfiler(FakeClock()),
        make_sampler=FakeSampler,
    )


def test_how_long_the_thread_slept_is_known_of_each_timed_step() -> None:
    session = on_the_real_clock()
    while not session.done:
        session.boundary("function")
        time.sleep(0.02)
    slept, timed = session.result.slept_ns, session.result.all_plain_ns
    assert len(slept) == len(timed)
    assert all(0 < asleep <= length for asleep, length in zip(slept, timed))


def test_processor_time_and_pauses_are_known_of_each_timed_step() -> None:
    session = on_the_real_clock()
    watching = len(gc.callbacks)
    while not session.done:
        session.boundary("function")
        gc.collect()
    efforts = session.result.efforts
    assert len(efforts) == len(session.result.all_plain_ns)
    # Nothing else happens in these steps.
    for effort in efforts.values():
        assert effort.paused_ns > 0
        assert effort.ran_ns > 0
    assert len(gc.callbacks) == watching


def test_a_program_that_ends_inside_a_timed_step_leaves_nothing_attached() -> None:
    session, _ = make(Plan(warmup=1, steps=4, profiled=2), FakeClock())
    watching = len(gc.callbacks)
    while session.phase != TIME:
        session.boundary("function")
    assert len(gc.callbacks) == watching + 1
    session.salvage()
    session.abandon()
    assert len(gc.callbacks) == watching


def test_steps_of_different_sizes_are_timed_until_their_mean_is_known() -> None:
    clock = FakeClock()
    session, _ = make(Plan(warmup=1), clock)
    session._agree = lambda what, own: {**own, "varying": 1.0}
    phases = run(session, clock, [10, 30] * 200)
    # Half 10 and half 30 ms: a standard error of 3 % is that of (10 / 20 / 0.03)^2 = 278.
    timed = session.result.all_plain_ns
    assert session.done
    assert len(timed) == pytest.approx(278, abs=6)
    assert len(timed) == phases.count(TIME)
    assert phases[phases.index(SAMPLE) :].count(TIME) > 0
    # Who asks for a number of steps gets it.
    session, _ = make(Plan(warmup=1, steps=20), FakeClock())
    session._agree = lambda what, own: {**own, "varying": 1.0}
    run(session, session._clock, [10, 30] * 50)  # type: ignore[arg-type]
    assert len(session.result.all_plain_ns) == 20


class BusyMachine:
    """Counters of two processors: other programs have one, and this one's threads wait."""

    processors = 2

    def __init__(self) -> None:
        self._wall_ns = 0

    def read(self) -> LoadReading:
        self._wall_ns += 100 * MS
        wall = self._wall_ns
        return LoadReading(wall, wall, wall // 2, 2 * wall)


class FakeDevice:
    """Steps that take half as long on the device as the host takes to issue them."""

    def __init__(self, clock: FakeClock, gone: bool = False) -> None:
        self._clock, self._gone = clock, gone
        self._marks: list[int] = []

    def card_state(self) -> None: ...

    def start_block(self) -> None:
        self._marks = [self._clock()]

    def mark(self) -> None:
        self._marks.append(self._clock())

    def driver_calls(self) -> None: ...

    def end_block(self) -> list[int]:
        if self._gone:
            raise UserCodeError("the GPU failed while gobrrr waited for it")
        return [(end - begin) // 2 for begin, end in zip(self._marks, self._marks[1:])]


def test_a_program_that_ends_while_timed_has_the_load_of_its_unfinished_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gobrrr.measure.load.SystemLoadCounters", BusyMachine)
    clock = FakeClock()
    session, _ = make(Plan(warmup=1, steps=12), clock)
    run(session, clock, [10] * 4)
    assert session.phase == TIME and session.result.disturbance is None
    session.salvage()
    assert "other programs took 50 %" in str(session.result.disturbance)
    assert session.result.all_plain_ns == [10 * MS] * 3


@pytest.mark.parametrize("gone", [False, True])
def test_a_device_says_how_long_the_steps_of_an_unfinished_block_took(gone: bool) -> None:
    clock = FakeClock()
    session, _ = make(Plan(warmup=1, steps=12), clock)
    session._find_device = lambda: FakeDevice(clock, gone)
    run(session, clock, [10] * 4)
    # The host's own clock says when they were issued.
    assert session.phase == TIME and session.result.all_plain_ns == [10 * MS] * 3
    for _ in range(2):
        session.salvage()
        assert session.result.all_plain_ns == ([] if gone else [5 * MS] * 3)
    assert len(session.result.notices) == gone
    assert session.result.plain_windows[0] == ([] if gone else [1, 2, 3])


def test_of_two_disturbed_blocks_the_worse_is_told() -> None:
    found = Measurements()
    little = Load(1.0, 0.9, 0.1, 0.2, processors=1)
    much = Load(1.0, 0.4, 0.6, 0.6, processors=1)
    for load in (little, much, little):
        found.note(load)
    assert found.disturbance == much.disturbance()
    assert found.severity == pytest.approx(0.6)


def test_steps_that_grow_are_timed_for_a_limited_time() -> None:
    clock = FakeClock()
    session, _ = make(Plan(), clock)
    # 5 ms are 400 steps of timing; then a step takes 200 ms.
    run(session, clock, [5] * 60 + [200] * 300)
    assert session.done
    assert sum(session.result.all_plain_ns) <= 21_000 * MS
    assert len(session.result.all_plain_ns) > 90
