"""What recording cost the host, by hand: events of the costs below, times in microseconds.

An op costs 4 ahead of it, 1 within it and 2 behind it; a call of the runtime, and the mark of a
step, 3 on either side and 5 within it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gobrrr.attribution.device.idle import find_idle
from gobrrr.attribution.device.profiler_cost import CostOfRecording, EventCosts
from gobrrr.recordings.traces import read_trace
from gobrrr.timeline import intervals
from gobrrr.timeline.data import Stalls
from gobrrr.timeline.nesting import parents
from trace_writing import WrittenTrace

US = 1000
COSTS = EventCosts(
    before=4.0 * US, inside=1.0 * US, after=2.0 * US, call_around=6.0 * US, call=5.0 * US
)


def gaps_left(
    trace: WrittenTrace, folder: Path, factor: float = 1.0, stalls: Stalls | None = None
) -> tuple[list[float], CostOfRecording]:
    """Of each gap of the device what is not the profiler's, in microseconds; the cost itself."""
    timeline = read_trace(trace.write(folder))
    if stalls is not None:
        timeline = replace(timeline, stalls=stalls)
    host, kernels = timeline.host, timeline.kernels
    busy = intervals.union(kernels.start_ns, kernels.end_ns)
    pieces = find_idle(timeline, busy, parents(host.start_ns, host.end_ns, host.thread))
    cost = CostOfRecording(timeline, pieces, COSTS)
    left_ns = cost.kept(factor) * (pieces.end_ns - pieces.start_ns)
    gap = np.cumsum(np.append(True, pieces.start_ns[1:] != pieces.end_ns[:-1])) - 1
    return (np.bincount(gap, left_ns) / US).round(6).tolist(), cost


def two_gaps(second_op: float = 330, second_kernel: float = 500) -> WrittenTrace:
    """Idle until 100, busy until 300, idle from there to the second kernel's start."""
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 1000)
    trace.launch("first", 90, 100, 200, correlation=1)  # the call: [90, 92)
    trace.op("aten::mm", second_op, 60)
    trace.launch("second", second_op + 20, second_kernel, 500, correlation=2)
    return trace


def test_what_events_cost_in_a_gap_is_taken_off_it(tmp_path: Path) -> None:
    # The first gap: 5 of the step's mark, 3 and 5 of the call, whose other 3 come after its return;
    # what the kernel waits from there is no work of the host's. The second: those 3 are hidden
    # under the kernel and make the host late by as much; 4 and 1 of the op, 3 and 5 of its call.
    found, _ = gaps_left(two_gaps(), tmp_path)
    assert found == [100 - 13, 200 - 3 - 13]


def test_twice_the_factor_takes_twice_as_much(tmp_path: Path) -> None:
    assert gaps_left(two_gaps(), tmp_path, 2.0)[0] == [100 - 26, 200 - 32]
    assert gaps_left(two_gaps(), tmp_path, 0.0)[0] == [100, 200]


def test_what_events_cost_while_the_device_is_busy_shortens_the_next_gap(tmp_path: Path) -> None:
    trace = two_gaps()
    for start in (110, 150, 200):
        trace.op("aten::view", start, 10)
    # Three ops of 4 + 1 + 2 more.
    assert gaps_left(trace, tmp_path)[0] == [87, 200 - 16 - 21]


def test_a_wait_for_the_device_takes_back_the_lead(tmp_path: Path) -> None:
    trace = two_gaps()
    for start in (110, 150, 200):
        trace.op("aten::view", start, 10)
    trace.call("cudaStreamSynchronize", 250, 51, 9)  # until 301, past the kernel's end
    # Of all before its return nothing is late any more. In the gap there are 3 behind it,
    # and the 13 of the op and its call.
    assert gaps_left(trace, tmp_path)[0] == [87, 200 - 16]


def test_a_lead_that_a_gap_has_no_room_for_is_the_next_ones(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 1000)
    trace.launch("first", 90, 100, 200, correlation=1)  # busy [100, 300)
    for start in range(110, 290, 20):
        trace.op("aten::view", start, 10)
    trace.launch("second", 301, 310, 90, correlation=2)  # the call: [301, 303); busy [310, 400)
    trace.launch("third", 480, 500, 500, correlation=3)
    # Nine views of 7, and 3 behind the first call, make the host 66 late. Of the gap [300, 310)
    # the host has [300, 303), and its call costs 8: with 5 too many it is 71 late. The 7 that the
    # kernel then waited go as well, for its launch would have been earlier; 64 are left to the
    # third gap, whose own are 3 of the second call, hidden, and 3 and 5 of the third.
    assert gaps_left(trace, tmp_path)[0] == [87, 0, 100 - 64 - 3 - 8]


def test_what_the_profiler_says_that_it_took_goes_whole(tmp_path: Path) -> None:
    at = np.array([120 * US, 310 * US])
    names = np.zeros(2, np.int32)
    stalls = Stalls(at, at + np.array([30 * US, 10 * US]), names)
    # 30 under the kernel, 10 in the gap; no factor changes that.
    assert gaps_left(two_gaps(), tmp_path, 0.0, stalls)[0] == [100, 200 - 40]
    assert gaps_left(two_gaps(), tmp_path, 1.0, stalls)[0] == [87, 200 - 40 - 16]


def test_the_factor_is_that_which_makes_the_step_as_long_as_the_timed_one(tmp_path: Path) -> None:
    _, cost = gaps_left(two_gaps(), tmp_path)
    weights = np.ones(len(cost.kept(1.0)))
    assert cost.taken_ns(1.0, weights) == pytest.approx((13 + 16) * US)
    kept = cost.kept_of_step(weights, profiled_ns=1000 * US, timed_ns=(1000 - 43.5) * US)
    assert kept == pytest.approx(cost.kept(1.5))
    # A step that recording did not make longer has nothing of it.
    assert cost.kept_of_step(weights, 1000 * US, 1000 * US) == pytest.approx(1.0)


def test_a_difference_that_recording_cannot_explain_is_the_kernels(tmp_path: Path) -> None:
    _, cost = gaps_left(two_gaps(), tmp_path)
    weights = np.ones(len(cost.kept(1.0)))
    # 87 at the most, and 300 idle of which 250 are missing: 50 of 750 are hardly idle.
    busy = cost.kept_of_step(weights, profiled_ns=1000 * US, timed_ns=750 * US)
    assert busy == pytest.approx(cost.kept(1.0))
    # Idle for 200 of 900: the host decides how long the step is, and has all that it can have.
    idle = cost.kept_of_step(weights, profiled_ns=1000 * US, timed_ns=900 * US)
    assert idle == pytest.approx(cost.kept(3.0))
