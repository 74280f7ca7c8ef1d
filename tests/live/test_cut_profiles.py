"""A profiler does not hold what a program does beside its steps, however long that takes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gobrrr.live.measurements import Plan  # noqa: E402
from gobrrr.live.profiles.profile import HostProfiler  # noqa: E402
from gobrrr.live.profiling import Profiling  # noqa: E402
from gobrrr.live.session import PROFILE, Session  # noqa: E402
from gobrrr.live.watch.call_watch import CallWatch  # noqa: E402

pytestmark = pytest.mark.torch


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_step_that_goes_on_for_long_is_lost_and_those_before_it_are_kept() -> None:
    one = torch.ones(3)
    clock, profiler = Clock(), HostProfiler()
    profiling = Profiling(profiler, longest_s=5.0, clock=clock)
    profiling.start()
    for window in range(2):
        one.add_(one)
        clock.now_s += 4.0
        profiling.look()
        profiling.mark(window)
    assert not profiling.cut
    one.mul_(one)
    clock.now_s += 6.0
    # Another thread can end no profiler of this one.
    other = threading.Thread(target=profiling.look)
    other.start()
    other.join()
    assert not profiling.cut
    profiling.look()
    assert profiling.cut
    assert not profiling.interrupted
    assert not torch.autograd._profiler_enabled()
    one.sub_(one)
    profiling.mark(2)
    session = Session(Plan())
    assert profiling.put_into(session.result, 0) == 2
    assert session.result.profiled_windows == [0, 1]
    for step in session.result.profiled:
        assert [step.names[i] for i in step.name] == ["aten::add_"]


def _run(beside: Callable[[int], bool], monkeypatch: pytest.MonkeyPatch) -> Session:
    """A session of steps; where ``beside`` (of the number of profiled windows) something long."""
    one, calls = torch.ones(3), CallWatch()
    session = Session(Plan(warmup=1, steps=4, profiled=3), calls=calls)
    windows = 0
    session.boundary("test")
    while not session.done:
        one.add_(one)
        if session.phase == PROFILE:
            windows += 1
            if beside(windows):
                running: Any = session._profiling
                monkeypatch.setattr(running, "_until_s", 0.0)
                calls.after_call()
                for _ in range(1000):
                    one.mul_(one)
        session.boundary("test")
    return session


def test_one_evaluation_among_the_profiled_steps_costs_one_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = _run(lambda window: window == 3, monkeypatch)
    assert not session.result.by_dispatch
    assert len(session.result.profiled) == 3
    assert all(len(step) == 1 for step in session.result.profiled)
    lengths = (len(session.result.profiled), len(session.result.profiled_windows))
    assert lengths[0] == lengths[1]


def test_what_is_beside_every_step_is_timed_through_the_dispatcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = _run(lambda window: True, monkeypatch)
    assert session.result.by_dispatch
    assert len(session.result.profiled) == 3
    assert all(len(step) == 1001 for step in session.result.profiled)
    assert sum("more than torch's profiler can hold" in n for n in session.result.notices) == 1
