"""The phases, driven by a fake clock: no profiler, no torch, exact lengths."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gobrrr.capture.profile import RawEvents
from gobrrr.capture.sampler import LineSample
from gobrrr.capture.session import DONE, PROFILE, RECORD, TIME, WARMUP, Plan, Session

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
        plan, clock=clock, make_recorder=FakeRecorder, make_profiler=profiler,
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
    # 2 warm-up, 1 recorded + 1 let pass, 2 timed, 1 + 3 profiled, 2 timed, 1 + 2 sampled.
    assert (
        phases
        == [WARMUP] * 2
        + [RECORD] * 2
        + [TIME] * 2
        + [PROFILE] * 4
        + [TIME] * 2
        + ["sampling lines"] * 3
        + [DONE] * 2
    )
    assert session.done
    assert len(session.result.profiled) == 3
    assert [step.length_ns for step in session.result.profiled] == [10 * MS] * 3
    assert not any(profiler.running for profiler in profilers)


def test_plain_steps_are_timed_without_what_gobrrr_does_between_them() -> None:
    clock = FakeClock()

    def slow_progress(phase: str, done: int, wanted: int) -> None:
        clock.now_ns += 1000 * MS

    session, _ = make(Plan(warmup=1, steps=4, profiled=1), clock)
    session._on_phase = slow_progress
    run(session, clock, [7] * 11)
    assert session.result.all_plain_ns == [7 * MS] * 4


def test_warm_up_lasts_until_three_steps_agree() -> None:
    clock = FakeClock()
    session, _ = make(Plan(), clock)
    phases = run(session, clock, [900, 300, 120, 100, 101, 99, 100])
    # The last three of 120, 100, 101 differ by 20 %; 100, 101, 99 by 2 %.
    assert phases.count(WARMUP) == 6


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
