"""Two lanes replayed and attributed: the arithmetic stands beside each expectation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.attribution.leaves import LEAVES
from gobrrr.prediction.kernels.target import target_device
from gobrrr.prediction.step.costs import CostedOp, OpCost
from gobrrr.prediction.step.host_calls import host_calls_of
from gobrrr.prediction.step.host_lane import HostCall, HostCosts, host_seconds
from gobrrr.prediction.step.replay import QUEUE_LENGTH, replay
from gobrrr.prediction.step.step import predicted_step
from gobrrr.prediction.step.timeline import predicted_timeline
from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall, TensorSpec

US = 1e-6
COSTS = HostCosts(
    op_s=5 * US, program_s=5 * US, view_s=1 * US, node_s=0.0, launch_s=2 * US, latency_s=4 * US,
    gap_s=1 * US, synchronise_s=3 * US,
)  # fmt: skip
ONE = HostCall(kernels=1)
H100 = target_device("H100-SXM")
ON_DEVICE = TensorSpec((4,), "float32", device="cuda:0")


def costed(
    kernels: int, device_us: float, *, phase: Phase = Phase.FORWARD, waits: bool = False
) -> CostedOp:
    name = "aten::item" if waits else "mine::op"
    op = StepOp(OpCall(name, (ON_DEVICE,)), "net", "a.py:1", phase)
    device_s = device_us * US if kernels else 0.0
    return CostedOp(op, OpCost(op.call, None, None, device_s, 0.0, kernels, 1))


@dataclass
class Step:
    """A predicted step, in microseconds."""

    makespan: float
    busy: float
    launch: float
    dispatch: float
    synchronisation: float
    gap: float = 0.0


def predicted(ops: Sequence[CostedOp]) -> Step:
    step, _ = predicted_step(ops, H100, COSTS, band=None)
    assert set(step.leaves_ns) == set(LEAVES)
    leaves = {name: ns / 1e3 for name, ns in step.leaves_ns.items()}
    names = ("launch", "dispatch", "synchronisation", "kernel_gap")
    idle = [leaves.pop(f"overhead.{name}") for name in names]
    busy = sum(leaves.values())
    return Step(busy + sum(idle), busy, *idle)


def test_a_slow_host_sets_the_step() -> None:
    # The device works 2 of every 10: each op is 2 busy, 4 until its launch arrives, and 4 in which
    # the host prepares it.
    assert predicted([costed(1, 2)] * 4) == Step(40, 8, 16, 16, 0)


def test_a_slow_device_sets_the_step_and_the_host_runs_ahead() -> None:
    # 4 * (50 + 1): launches are in the queue before they are needed.
    assert predicted([costed(1, 50)] * 4) == Step(204, 200, 0, 0, 0, 4)
    found = replay([ONE] * 4, [50 * US] * 4, COSTS)
    # The last op was issued when the step before it had not ended.
    assert found.ops.issued_s[-1] < 0
    assert found.ops.end_s[-1] == pytest.approx(204 * US)


def test_reading_a_result_in_each_step_empties_the_device() -> None:
    # The host reads for 1 (hidden) and learns of the end 3 later, prepares an op for 10, and its
    # launch travels for 4; then the device is busy: 3 further gaps and 200 of kernels.
    ops = [*[costed(1, 50)] * 4, costed(0, 0, waits=True)]
    assert predicted(ops) == Step(17 + 203, 200, 4, 10, 3, 3)


def test_waiting_in_the_middle_costs_where_it_stands() -> None:
    found = predicted([costed(1, 50), costed(0, 0, waits=True), costed(1, 50)])
    # As above, once: the second op is launched behind the wait, the first of the next step is not.
    assert found == Step(50 + 3 + 10 + 4 + 50 + 1, 100, 4, 10, 3, 1)


def test_kernels_of_one_op_follow_each_other() -> None:
    assert predicted([costed(3, 90)]) == Step(93, 90, 0, 0, 0, 3)
    timeline = predicted_timeline([costed(3, 90)], H100, COSTS).timeline
    assert timeline.kernels.start_ns.tolist() == [1000, 32_000, 63_000]
    assert timeline.kernels.end_ns.tolist() == [31_000, 62_000, 93_000]


def test_a_step_without_kernels_is_host_time() -> None:
    assert predicted([costed(0, 0)] * 5) == Step(5, 0, 0, 5, 0)
    with pytest.raises(ValueError, match="no op launches a kernel"):
        replay([HostCall(kernels=0)], [0.0], COSTS)


def test_a_full_queue_holds_the_host_back() -> None:
    count = QUEUE_LENGTH + 100
    found = replay([ONE] * count, [50 * US] * count, COSTS)
    issued_s, end_s = found.ops.issued_s, found.ops.end_s
    assert end_s[-1] == pytest.approx(51 * US * count)
    # The last op is issued when the one a queue's length before it has ended.
    assert issued_s[-1] == pytest.approx(end_s[-1 - QUEUE_LENGTH], abs=11 * US)


def test_one_time_for_each_op() -> None:
    with pytest.raises(ValueError, match="1 calls and 2 device times"):
        replay([ONE], [1.0, 2.0], COSTS)


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.floats(0, 100), st.booleans(), st.booleans()),
        min_size=1, max_size=20,
    )
)  # fmt: skip
def test_the_leaves_sum_to_a_step_that_is_no_shorter_than_either_lane(
    rows: list[tuple[int, float, bool, bool]],
) -> None:
    ops = [
        costed(
            kernels, seconds, phase=Phase.BACKWARD if back else Phase.FORWARD,
            waits=waits and not kernels,
        )
        for kernels, seconds, back, waits in rows
    ]  # fmt: skip
    step, _ = predicted_step(ops, H100, COSTS, band=None)
    total_s = sum(step.leaves_ns.values()) * 1e-9
    assert total_s == pytest.approx(step.step.time.median, abs=1e-9)
    assert min(step.leaves_ns.values()) >= -1e-6
    # Each kernel's ends are whole nanoseconds.
    rounding_s = 1e-9 * (2 + 3 * len(ops))
    assert total_s >= sum(op.device_s for op in ops) - rounding_s
    assert total_s >= sum(host_seconds(call, COSTS) for call in host_calls_of(ops)) - rounding_s
