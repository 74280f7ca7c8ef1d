from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gobrrr.prediction.carried.retime import retime
from gobrrr.recordings.traces import read_trace
from gobrrr.timeline.data import Timeline
from trace_writing import WrittenTrace


def step(queued: bool) -> WrittenTrace:
    """Three kernels of 100 us: behind each other, or each launched after the last has ended."""
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 1000)
    for i in range(3):
        called = 10 + 10 * i if queued else 10 + 200 * i
        starts = 20 + 101 * i if queued else 20 + 200 * i
        trace.launch(f"kernel{i}", called, starts, 100, correlation=i + 1)
    return trace


def read(trace: WrittenTrace, folder: Path) -> Timeline:
    return read_trace(trace.write(folder))


def starts_us(timeline: Timeline) -> list[float]:
    first = int(timeline.host.start_ns.min())
    return ((timeline.kernels.start_ns - first) / 1000).tolist()


def durations(timeline: Timeline, factor: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return (timeline.kernels.end_ns - timeline.kernels.start_ns) * factor


def test_with_the_same_durations_nothing_moves(tmp_path: Path) -> None:
    for queued in (True, False):
        timeline = read(step(queued), tmp_path)
        moved = retime(timeline, durations(timeline, 1.0))
        assert starts_us(moved) == starts_us(timeline)
        assert np.array_equal(moved.host.start_ns, timeline.host.start_ns)
        assert np.array_equal(moved.steps, timeline.steps)


def test_queued_kernels_close_up(tmp_path: Path) -> None:
    timeline = read(step(queued=True), tmp_path)
    moved = retime(timeline, durations(timeline, 0.5))
    # 50 us each, a microsecond apart as before.
    assert starts_us(moved) == [20.0, 71.0, 122.0]
    assert (moved.steps[0, 1] - moved.steps[0, 0]) / 1000 == pytest.approx(172.0)


def test_kernels_that_waited_for_their_launch_still_do(tmp_path: Path) -> None:
    timeline = read(step(queued=False), tmp_path)
    assert starts_us(retime(timeline, durations(timeline, 0.5))) == [20.0, 220.0, 420.0]
    # Twice as long is not past the next launch yet; three times is, and they queue up.
    assert starts_us(retime(timeline, durations(timeline, 1.5))) == [20.0, 220.0, 420.0]
    assert starts_us(retime(timeline, durations(timeline, 3.0))) == [20.0, 321.0, 622.0]


def test_very_fast_kernels_wait_for_their_launches(tmp_path: Path) -> None:
    timeline = read(step(queued=True), tmp_path)
    moved = starts_us(retime(timeline, durations(timeline, 0.01)))
    # Launched at 10, 20 and 30 (each call 2 us): none starts before its launch arrives.
    assert moved[0] == 20.0
    assert moved[1] >= 22.0
    assert moved[2] >= 32.0


def test_what_waited_for_the_device_waits_for_its_new_end(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 1000)
    trace.launch("first", 10, 20, 100, correlation=1)
    # Returns 5 us after the kernel's end at 120; the host then launches the second.
    trace.call("cudaDeviceSynchronize", 15, 110, 9)
    trace.launch("second", 130, 140, 100, correlation=2)
    timeline = read(trace, tmp_path)
    slower = retime(timeline, durations(timeline, 2.0))
    # The first ends at 220, the host goes on at 225, the second starts 100 us later than it did.
    assert starts_us(slower) == [20.0, 240.0]
    faster = retime(timeline, durations(timeline, 0.5))
    assert starts_us(faster) == [20.0, 90.0]


def test_one_duration_for_each_kernel(tmp_path: Path) -> None:
    timeline = read(step(queued=True), tmp_path)
    with pytest.raises(ValueError, match="2 durations for 3 kernels"):
        retime(timeline, np.ones(2))
