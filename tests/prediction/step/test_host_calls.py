"""What the host does beside a step's operators."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gobrrr.prediction.step.compiled_host import Entering, entering
from gobrrr.prediction.step.costs import CostedOp, OpCost
from gobrrr.prediction.step.host_calls import begun, calls_of_step, entered, host_calls_of
from gobrrr.prediction.step.host_lane import ADDITION_S, PASS
from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import CollectiveCall, StepOp
from gobrrr.timeline.ops import OpCall

FORWARD, BACKWARD, OPTIMIZER = Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER
CALL = OpCall("aten::add", ())
ON_GPU = OpCost(CALL, None, None, 1e-6, 0.0, 1, 1, weighted=True)


def steps(*phases: Phase, cost: OpCost = ON_GPU, module: str = "") -> list[CostedOp]:
    return [CostedOp(StepOp(CALL, module=module, phase=phase), cost) for phase in phases]


def entering_of(trains: bool) -> Entering:
    return entering(parameters=10, trains=trains, records=trains)


def before(ops: list[CostedOp]) -> list[float]:
    return [call.before for call in host_calls_of(ops)]


def test_each_backward_pass_and_each_update_begins_with_work_of_its_own() -> None:
    # Two micro-batches, then an update.
    ops = steps(FORWARD, BACKWARD, BACKWARD, FORWARD, BACKWARD, OPTIMIZER, OPTIMIZER)
    assert before(begun(ops)) == [0, PASS, 0, 0, PASS, PASS, 0]
    assert before(ops) == [0] * 7


def test_two_optimizers_in_a_row_are_two_updates() -> None:
    # Gradients set to zero before the first are part of it, and those between of the one before.
    ops = steps(BACKWARD, *[OPTIMIZER] * 6)
    numbers = (0, 0, 1, 1, 1, 2, 2)
    ops = [replace(op, op=replace(op.op, update=n)) for op, n in zip(ops, numbers)]
    assert before(begun(ops)) == [PASS, PASS, 0, 0, 0, PASS, 0]


def test_a_processor_runs_its_passes_on_one_thread() -> None:
    ops = steps(FORWARD, BACKWARD, cost=replace(ON_GPU, weighted=False))
    assert before(begun(ops)) == [0, 0]


def test_a_collective_between_begins_no_pass() -> None:
    ops = steps(FORWARD, BACKWARD, BACKWARD)
    asked = CollectiveCall("all_reduce", 8, "dp", (0, 1))
    between = replace(ops[0], op=replace(ops[0].op, collective=asked, phase=FORWARD))
    assert before(begun([ops[0], ops[1], between, ops[2]])) == [0, PASS, 0, 0]


def test_lists_on_the_host_begin_once() -> None:
    ops = begun(steps(FORWARD, BACKWARD, OPTIMIZER))
    ops[2] = replace(ops[2], cost=replace(ops[2].cost, host_calls=3))
    assert [call.before for call in calls_of_step(ops)] == [0, PASS, PASS, 0, 0]
    assert calls_of_step(ops[:2]) == host_calls_of(ops[:2])


@pytest.mark.parametrize("trains", [False, True])
def test_compiled_passes_are_entered(trains: bool) -> None:
    ops = begun(steps(FORWARD, FORWARD, *([BACKWARD, OPTIMIZER] if trains else [])))
    found = before(entered(ops, parameters=10))
    cost = entering_of(trains)
    expected = [cost.forward_s / ADDITION_S, 0.0]
    if trains:
        expected += [PASS + cost.backward_s / ADDITION_S, PASS]
    assert found == pytest.approx(expected)
    # Autograd's node and its edges are only there with a backward pass.
    assert (cost.forward_s > cost.frame_s) is trains


def test_each_micro_batch_enters_its_passes_again() -> None:
    cost = entering_of(trains=True)
    forward_s, backward_s = cost.forward_s, cost.backward_s
    ops = steps(FORWARD, FORWARD, BACKWARD, BACKWARD, module="0")
    # An update written out is none of the model's passes.
    found = before(entered([*ops, *ops, *steps(FORWARD)], parameters=10))
    expected = [forward_s, 0.0, backward_s, 0.0] * 2 + [0.0]
    assert found == pytest.approx([seconds / ADDITION_S for seconds in expected])
    # A second loss of the same forward pass.
    found = before(entered([*ops, *steps(FORWARD, BACKWARD)], parameters=10))
    expected = [forward_s, 0.0, backward_s, 0.0, 0.0, backward_s]
    assert found == pytest.approx([seconds / ADDITION_S for seconds in expected])
