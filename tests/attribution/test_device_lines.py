"""Which lines share the time that a device waits for Python: times in microseconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.attribution.device.lines import python_by_line
from gobrrr.observe.sampler import LineSample
from gobrrr.recordings.traces import read_trace
from gobrrr.timeline.data import Timeline
from gobrrr.timeline.names import UNASKED_LINE, UNKNOWN_LINE
from trace_writing import WrittenTrace

US = 1000


def two_pauses(folder: Path) -> Timeline:
    """Python until 10, from 30 to 60 and from 80 to 90, each before a launch."""
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 100)
    for place, (called, starts, duration) in enumerate(((10, 12, 18), (60, 62, 18), (90, 92, 8))):
        trace.launch("gemm", called, starts, duration, place)
    return read_trace(trace.write(folder))


def at(time_us: float, line: str | None, asleep_since_us: float | None = None) -> LineSample:
    since = -1 if asleep_since_us is None else int(asleep_since_us * US)
    return LineSample(int(time_us * US), line, since)


def test_a_pause_is_divided_among_the_lines_seen_in_it(tmp_path: Path) -> None:
    found = python_by_line(
        two_pauses(tmp_path),
        [at(2, "a.py:1"), at(35, "a.py:1"), at(40, "b.py:2"), at(50, "b.py:2"), at(85, None)],
    )
    # 10, and a third of 30; two thirds of 30; 10 of no line of the program's: of 50.
    assert found == pytest.approx({"a.py:1": 0.4, "b.py:2": 0.4, UNKNOWN_LINE: 0.2})


def test_what_was_seen_elsewhere_or_asleep_from_before_is_of_no_pause(tmp_path: Path) -> None:
    timeline = two_pauses(tmp_path)
    found = python_by_line(
        timeline,
        [
            at(20, "busy.py:1"),  # while the device was busy
            at(60, "launch.py:1"),  # where a pause has ended
            at(40, "slept.py:1", 25), at(40, UNASKED_LINE),
            at(45, "sleeps.py:1", 30), at(85, "a.py:1"), at(2, "a.py:1"),
        ],
    )  # fmt: skip
    assert found == pytest.approx({"sleeps.py:1": 0.6, "a.py:1": 0.4})
    # Of pauses in which nothing was seen the line is not known.
    assert python_by_line(timeline, [at(40, "a.py:1")]) == pytest.approx({"a.py:1": 0.6, None: 0.4})
