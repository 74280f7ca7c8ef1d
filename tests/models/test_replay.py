from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.models.host_lane import HostCall, HostCosts, host_seconds
from gobrrr.models.replay import QUEUE_LENGTH, replay
from gobrrr.timeline.data import Phase

# Microseconds in all tests of this file.
COSTS = HostCosts(
    op_s=10.0, view_s=1.0, backward_op_s=5.0, launch_s=2.0, latency_s=4.0, gap_s=1.0,
    synchronise_s=3.0,
)  # fmt: skip
ONE = HostCall(kernels=1)


def test_a_slow_host_sets_the_step() -> None:
    found = replay([ONE] * 4, [2.0] * 4, COSTS)
    # The device works 2 of every 10: each op is 2 busy, 1 gap, 4 launch, 3 host.
    assert found.makespan_s == pytest.approx(40.0)
    assert (found.busy_s, found.gap_s, found.launch_s, found.host_s) == (8.0, 4.0, 16.0, 12.0)


def test_a_slow_device_sets_the_step_and_the_host_runs_ahead() -> None:
    found = replay([ONE] * 4, [50.0] * 4, COSTS)
    # 4 * (50 + 1): launches are in the queue before they are needed.
    assert found.makespan_s == pytest.approx(204.0)
    assert (found.busy_s, found.gap_s, found.launch_s, found.host_s) == (200.0, 4.0, 0.0, 0.0)
    # The last op was issued before the step before it ended.
    assert found.ops[-1].issued_s < 0


def test_reading_a_result_in_each_step_empties_the_device() -> None:
    found = replay([ONE] * 4, [50.0] * 4, COSTS, ends_synchronised=True)
    # The host learns of the end 3 later, prepares an op for 10, and its launch travels for 4; the
    # gap is the first of these 17. Then the device is busy: 3 further gaps and 200 of kernels.
    assert found.makespan_s == pytest.approx(17 + 203)
    assert (found.gap_s, found.wait_s, found.host_s, found.launch_s) == (4.0, 3.0, 9.0, 4.0)


def test_waiting_in_the_middle_costs_where_it_stands() -> None:
    waits = HostCall(kernels=1, synchronises=True)
    found = replay([ONE, waits, ONE], [50.0] * 3, COSTS)
    # As above, once for each wait, minus the gap that each op has anyway.
    assert found.wait_s == pytest.approx(3.0)
    assert found.makespan_s > 153.0


def test_an_op_of_several_kernels_launches_them_all() -> None:
    # 10 + 2 * 2 on the host.
    assert [host_seconds(HostCall(kernels=n), COSTS) for n in (3, 0)] == [14.0, 1.0]
    assert host_seconds(HostCall(1, Phase.BACKWARD), COSTS) == 5.0
    found = replay([HostCall(kernels=3)], [90.0], COSTS)
    assert found.gap_s == pytest.approx(3.0)


def test_a_step_without_kernels_is_host_time() -> None:
    found = replay([HostCall(kernels=0)] * 5, [0.0] * 5, COSTS)
    assert (found.makespan_s, found.host_s, found.busy_s) == (5.0, 5.0, 0.0)


def test_a_full_queue_holds_the_host_back() -> None:
    count = QUEUE_LENGTH + 100
    found = replay([ONE] * count, [50.0] * count, COSTS)
    assert found.makespan_s == pytest.approx(51.0 * count)
    # The last op is issued when the one a queue's length before it has ended.
    assert found.ops[-1].issued_s == pytest.approx(found.ops[-1 - QUEUE_LENGTH].end_s, abs=11)


def test_one_time_for_each_op() -> None:
    with pytest.raises(ValueError, match="1 calls and 2 device times"):
        replay([ONE], [1.0, 2.0], COSTS)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.floats(0, 100), st.booleans(), st.booleans()),
        min_size=1, max_size=30,
    ),
    st.booleans(),
)  # fmt: skip
def test_the_parts_sum_to_the_step_which_is_no_shorter_than_either_lane(
    ops: list[tuple[int, float, bool, bool]], ends: bool
) -> None:
    calls = [
        HostCall(kernels, Phase.BACKWARD if back else Phase.FORWARD, waits)
        for kernels, _, back, waits in ops
    ]
    device = [seconds if kernels else 0.0 for kernels, seconds, _, _ in ops]
    found = replay(calls, device, COSTS, ends_synchronised=ends)
    parts = found.busy_s + found.gap_s + found.launch_s + found.host_s + found.wait_s
    assert parts == pytest.approx(found.makespan_s, abs=1e-6)
    assert min(found.gap_s, found.launch_s, found.host_s, found.wait_s) >= -1e-9
    assert found.makespan_s >= sum(device) - 1e-6
    assert found.makespan_s >= sum(host_seconds(call, COSTS) for call in calls) - 1e-6
