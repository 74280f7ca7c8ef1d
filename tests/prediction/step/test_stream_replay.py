"""Several streams, replayed: the arithmetic stands beside each expectation."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.prediction.step.host_lane import HostCall, HostCosts
from gobrrr.prediction.step.replay import replay
from gobrrr.prediction.step.stream_replay import StreamCall, replay_streams
from gobrrr.timeline.data import Phase
from gobrrr.timeline.streams import step_before

US = 1e-6
FREE = HostCosts(*[0.0] * 8)
COSTS = HostCosts(
    op_s=5 * US, program_s=5 * US, view_s=1 * US, node_s=0.0, launch_s=2 * US, latency_s=4 * US,
    gap_s=1 * US, synchronise_s=3 * US,
)  # fmt: skip
COMPUTE, OTHER, THIRD = 0, 1, 2


def op(us: float, stream: int = COMPUTE, after: tuple[int, ...] = (), link: str = "") -> StreamCall:
    return StreamCall(HostCall(1 if us else 0), us * US, stream, after, link)


def times(calls: Sequence[StreamCall], slowdown: float = 0.0) -> list[tuple[float, float]]:
    """Start and end of each op, in microseconds."""
    found = replay_streams(calls, FREE, slowdown).ops
    ends = zip(found.start_s.tolist(), found.end_s.tolist())
    return [(round(start_s / US, 3), round(end_s / US, 3)) for start_s, end_s in ends]


def test_a_collective_runs_beside_what_does_not_wait_for_it() -> None:
    calls = [op(10), op(8, OTHER, (0,), "devices"), op(20), op(5, after=(1,))]
    assert times(calls) == [(0, 10), (10, 18), (10, 30), (30, 35)]


def test_what_waits_for_it_is_exposed_to_the_rest_of_it() -> None:
    # 30 of communication behind 20 of computation: 10 are exposed.
    calls = [op(10), op(30, OTHER, (0,), "devices"), op(20), op(5, after=(1,))]
    assert times(calls) == [(0, 10), (10, 40), (10, 30), (40, 45)]


def test_a_collective_slows_what_computes_beside_it() -> None:
    # From 10 to 18 the third op runs at 1/1.5: 8 / 1.5 = 5.333 of its 20 are done, 14.667 are left.
    calls = [op(10), op(8, OTHER, (0,), "devices"), op(20), op(5, after=(1,))]
    assert times(calls, 0.5) == [(0, 10), (10, 18), (10, 32.667), (32.667, 37.667)]


def test_collectives_over_one_link_share_it() -> None:
    # Each has half: 6 of the first take 12; of the second 10 - 6 = 4 are left, alone.
    calls = [
        op(1), op(6, OTHER, (0,), "devices"), op(10, THIRD, (0,), "devices"), op(1, after=(1, 2)),
    ]  # fmt: skip
    assert times(calls) == [(0, 1), (1, 13), (1, 17), (17, 18)]


def test_collectives_over_two_links_do_not() -> None:
    calls = [
        op(1), op(6, OTHER, (0,), "devices"), op(10, THIRD, (0,), "hosts"), op(1, after=(1, 2)),
    ]  # fmt: skip
    assert times(calls) == [(0, 1), (1, 7), (1, 11), (11, 12)]


def test_an_op_without_kernels_passes_its_waiting_on() -> None:
    # The view waits for the other stream, and the op behind it in its own stream with it.
    calls = [op(10), op(30, OTHER, (0,)), op(0, after=(1,)), op(5)]
    assert times(calls)[3] == (40, 45)


def test_who_waits_for_an_op_without_kernels_waits_for_what_came_before_it() -> None:
    calls = [op(10), op(0), op(5, OTHER, (1,)), op(1, after=(2,))]
    assert times(calls)[2] == (10, 15)


def test_what_nothing_in_the_step_waits_for_is_waited_for_by_the_next() -> None:
    # The wait at the end has no op behind it: the first op of the next step starts after it. A step
    # is 10 + 30 long and not 10.
    calls = [op(10), op(30, OTHER, (0,)), op(0, after=(1,))]
    assert times(calls)[:2] == [(0, 10), (10, 40)]


def test_what_waits_for_the_step_before_cannot_start_while_that_runs() -> None:
    # Weights are gathered for the next step: the host has long issued it, but they are only there
    # once the step before has updated them. Nothing hides the 8.
    gather, compute = op(8, OTHER, (step_before(COMPUTE),), "devices"), op(20, after=(0,))
    assert times([gather, compute]) == [(0, 8), (8, 28)]
    # Without that wait it runs beside what the step before computes.
    assert times([op(8, OTHER, (), "devices"), compute])[1] == (0, 20)


def test_reading_a_result_waits_for_its_own_stream() -> None:
    reads = StreamCall(HostCall(0, synchronises=True), 0.0)
    found = replay_streams([op(10), op(30, OTHER, (0,)), reads, op(5, after=(1,))], FREE, 0.0)
    # The result is there at 10; the collective is not.
    assert found.ops.told_s[2] == pytest.approx(10 * US)
    assert found.ops.start_s[3] == pytest.approx(40 * US)


def test_it_refuses_what_it_cannot_run() -> None:
    with pytest.raises(ValueError, match="no op launches a kernel"):
        replay_streams([op(0)], FREE)
    with pytest.raises(ValueError, match="op 0 waits for op 1, which comes after it"):
        replay_streams([op(1, after=(1,)), op(1)], FREE)


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.floats(1, 100), st.booleans(), st.booleans()),
        min_size=1, max_size=25,
    )
)  # fmt: skip
def test_in_one_stream_it_is_the_replay_of_two_lanes(
    rows: list[tuple[int, float, bool, bool]],
) -> None:
    calls = [
        HostCall(kernels, Phase.BACKWARD if back else Phase.FORWARD, waits)
        for kernels, _, back, waits in rows
    ]
    calls.append(HostCall(1))
    seconds = [us * US if call.kernels else 0.0 for call, (_, us, _, _) in zip(calls, rows)]
    seconds.append(3 * US)
    expected = replay(calls, seconds, COSTS)
    found = replay_streams([StreamCall(c, s) for c, s in zip(calls, seconds)], COSTS)
    for ours, theirs in ((found.lead, expected.lead), (found.ops, expected.ops)):
        for name in ("begin_s", "issued_s", "told_s", "start_s", "end_s"):
            assert getattr(ours, name) == pytest.approx(getattr(theirs, name), abs=1e-12)
