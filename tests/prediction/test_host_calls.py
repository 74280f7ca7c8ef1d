"""What the host does beside a step's operators."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gobrrr.models.compiled_host import entering_s
from gobrrr.models.host_lane import ADDITION_S, PASS, HostCall
from gobrrr.prediction.costs import CostedOp, OpCost
from gobrrr.prediction.host_calls import begun, entered, host_calls_of, repeated
from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import CollectiveCall, StepOp
from gobrrr.timeline.ops import OpCall

FORWARD, BACKWARD, OPTIMIZER = Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER
CALL = OpCall("aten::add", ())
ON_GPU = OpCost(CALL, None, None, 1e-6, 0.0, 1, 1, weighted=True)


def steps(*phases: Phase, cost: OpCost = ON_GPU, module: str = "") -> list[CostedOp]:
    return [CostedOp(StepOp(CALL, module=module, phase=phase), cost) for phase in phases]


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
    call = HostCall(0, OPTIMIZER, before=PASS)
    assert [each.before for each in repeated(call, 3)] == [PASS, 0, 0]
    assert repeated(call, 1) == [call]


@pytest.mark.parametrize("trains", [False, True])
def test_compiled_passes_are_entered(trains: bool) -> None:
    ops = begun(steps(FORWARD, FORWARD, *([BACKWARD, OPTIMIZER] if trains else [])))
    found = before(entered(ops, parameters=10))
    forward_s, backward_s = entering_s(parameters=10, trains=trains)
    expected = [forward_s / ADDITION_S, 0.0]
    if trains:
        expected += [PASS + backward_s / ADDITION_S, PASS]
    assert found == pytest.approx(expected)
    # Autograd's node and its edges are only there with a backward pass.
    assert (forward_s > entering_s(parameters=0, trains=False)[0]) is trains


def test_each_micro_batch_enters_its_passes_again() -> None:
    forward_s, backward_s = entering_s(parameters=10, trains=True)
    ops = steps(FORWARD, FORWARD, BACKWARD, BACKWARD, module="0")
    # An update written out is none of the model's passes.
    found = before(entered([*ops, *ops, *steps(FORWARD)], parameters=10))
    expected = [forward_s, 0.0, backward_s, 0.0] * 2 + [0.0]
    assert found == pytest.approx([seconds / ADDITION_S for seconds in expected])
    # A second loss of the same forward pass.
    found = before(entered([*ops, *steps(FORWARD, BACKWARD)], parameters=10))
    expected = [forward_s, 0.0, backward_s, 0.0, 0.0, backward_s]
    assert found == pytest.approx([seconds / ADDITION_S for seconds in expected])
