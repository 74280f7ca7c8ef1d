"""Lives of storages, and ops in several streams."""

from __future__ import annotations

from gobrrr.timeline.graph import CollectiveCall, StepOp, StorageLife, peak_of
from gobrrr.timeline.ops import OpCall
from gobrrr.timeline.streams import StreamOrder, step_before


def test_a_peak_is_of_what_is_alive_at_once() -> None:
    lives = [
        StorageLife(100, -1, None),  # there before the step and after it
        StorageLife(10, 0, 1),
        StorageLife(20, 1, 2),  # made while the one before is still there
        StorageLife(5, 2, None),
    ]
    # During op 1: 100 + 10 + 20.
    assert peak_of(lives, 2) == 130
    assert peak_of(lives[:1], 0) == 100
    assert peak_of(lives[2:], 3) == 25
    assert peak_of([], 4) == 0
    # What dies with the last op is there until its end.
    assert peak_of([StorageLife(7, 3, 3), StorageLife(1, 0, 2)], 3) == 7


def op(collective: CollectiveCall | None = None) -> StepOp:
    return StepOp(OpCall("aten::add"), collective=collective)


def in_group(group: str) -> StepOp:
    return op(CollectiveCall("all_reduce", 8, group, (0, 1)))


def test_a_stream_waits_for_what_it_was_told_to() -> None:
    order = StreamOrder()
    first, second = order.put(op()), order.put(op(), stream=1)
    assert (first, second) == (0, 1)
    order.wait_stream(1, 0)
    waits = order.put(op(), stream=1)
    # What its own stream has run before is no wait, nor is a wait kept for the next op.
    assert order.ops[waits].after == (0,)
    assert order.ops[order.put(op(), stream=1)].after == ()
    # An event holds what its stream was to wait for and has not begun.
    order.wait_stream(2, 1)
    assert order.event(2) == {step_before(2), 3}
    order.wait_stream(0, 2)
    assert order.ops[order.put(op())].after == (step_before(2), 3)


def test_before_its_first_op_a_stream_is_what_it_was_given_in_the_step_before() -> None:
    order = StreamOrder()
    assert order.event(3) == {step_before(3)}
    assert [step_before(stream) for stream in (0, 3)] == [-1, -4]
    assert step_before(step_before(3)) == 3
    order.wait_stream(0, 3)
    assert order.ops[order.put(op())].after == (-4,)
    # Of its own stream it waits for nothing.
    order.wait(3, frozenset({step_before(3)}))
    assert order.ops[order.put(op(), stream=3)].after == ()
    order.wait(1, frozenset({step_before(0)}))
    assert order.ops[order.put(op(), stream=1)].after == (-1,)
    order.wait(0, frozenset({step_before(0)}))
    assert order.ops[order.put(op())].after == ()


def test_collectives_of_one_group_run_one_after_the_other() -> None:
    order = StreamOrder()
    order.put(in_group("a"), stream=1)
    order.put(in_group("b"), stream=2)
    order.put(in_group("a"), stream=2)
    order.put(in_group("a"), stream=1)
    assert [each.after for each in order.ops] == [(), (), (0,), (2,)]
    assert [each.stream for each in order.ops] == [1, 2, 2, 1]


def test_an_op_in_its_own_stream_stays_as_it_is() -> None:
    order = StreamOrder()
    one = op()
    order.put(one)
    assert order.ops[0] is one
    order.put(op(), after=(0,))
    assert order.ops[1].after == ()
    order.put(op(), stream=4, after=(1, 0))
    assert (order.ops[2].stream, order.ops[2].after) == (4, (0, 1))
