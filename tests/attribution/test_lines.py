"""Lines that Python's time goes to, and whether the thread slept there."""

from __future__ import annotations

import numpy as np
import pytest

from gobrrr.attribution.cpu.lines import LaneStep, Spent, time_by_line
from gobrrr.attribution.lane import cut_step
from gobrrr.live.profiles.cpu_timeline import build_cpu_capture
from gobrrr.live.profiles.profile import ProfilerCost, RawEvents
from gobrrr.observe.sampler import LineSample
from gobrrr.timeline.data import Device


def _step(samples: list[LineSample]) -> LaneStep:
    """A step of 100 ns with one operator from 40 to 60."""
    raw = RawEvents(
        names=("aten::view",),
        start_ns=np.array([40], np.int64),
        end_ns=np.array([60], np.int64),
        name=np.zeros(1, np.int32),
        thread=np.zeros(1, np.int32),
        annotation=np.zeros(1, bool),
        length_ns=100,
    )
    capture = build_cpu_capture([raw], [], Device("", "cpu"))
    pieces = cut_step(capture, (0, 100), np.zeros(0, bool), ProfilerCost(0.0, 0.0))
    return LaneStep(capture, pieces, samples)


def test_a_gap_is_shared_by_what_was_seen_in_it() -> None:
    samples = [
        LineSample(5, "a.py:1"), LineSample(10, "a.py:2", 6),
        LineSample(20, "a.py:2", 10), LineSample(30, "a.py:2", 20),
        LineSample(50, "a.py:9", 45),  # in an operator: no gap
        LineSample(65, "a.py:3", 50),  # most of it in the operator before
        LineSample(70, "a.py:3"),
    ]  # fmt: skip
    # 0 to 40 by four samples, 60 to 100 by one; 80 in all.
    assert time_by_line([_step(samples)]) == {
        Spent("a.py:1", False): pytest.approx(10 / 80),
        Spent("a.py:2", True): pytest.approx(30 / 80),
        Spent("a.py:3", False): pytest.approx(40 / 80),
    }


def test_sleep_is_known_without_a_line() -> None:
    found = time_by_line([_step([LineSample(10, None, 5)])])
    assert [spent.asleep for spent in found] == [True, False]
    assert sum(found.values()) == pytest.approx(1.0)
    assert time_by_line([_step([])]) == {}
