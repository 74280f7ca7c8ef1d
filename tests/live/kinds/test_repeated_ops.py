"""Which ops of a step grow: by the same ops of another recorded step."""

import pytest

from gobrrr.live.kinds.repeated_ops import may_grow, with_varying
from gobrrr.live.measurements import RecordedStep
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall, TensorSpec


def cat(given, added=500, storage=1, source="train.py:9 in main", **more):
    tensors = (TensorSpec((given,), "float32", None, storage), TensorSpec((added,), "float32"))
    made = TensorSpec((given + added,), "float32", None, 90)
    return StepOp(OpCall("aten::cat", (tensors,), (made,)), source=source, **more)


def grows(one, other, apart=1):
    (op,) = with_varying(RecordedStep([one], 10), [RecordedStep([other], 10 + apart)])
    return op.grows


def test_what_an_op_made_itself_in_the_step_before_grows():
    assert grows(cat(1000), cat(1500))
    assert grows(cat(1500), cat(1000), apart=-1)
    assert grows(cat(1000), cat(2500), apart=3)
    assert grows(cat(1000, added=20), cat(1020, added=35))


@pytest.mark.parametrize(
    ("later", "apart"),
    [
        (cat(1000), 1),
        (cat(1400), 1),
        (cat(1500), 2),
        (cat(1500, source="other.py:3 in f"), 1),
        (cat(400, added=1100), 1),
    ],
)
def test_other_lengths_and_other_lines_are_no_growth(later, apart):
    assert not grows(cat(1000), later, apart)


def test_a_second_step_is_worth_recording_where_most_was_there_before_the_step():
    assert may_grow([cat(1000)])
    made = StepOp(OpCall("aten::mm", (), (TensorSpec((1000,), "float32", None, 1),)))
    assert not may_grow([made, cat(1000)])
    # A view of what was there is there as well.
    whole = TensorSpec((50, 20), "float32", None, 1)
    flat = TensorSpec((1000,), "float32", None, 1)
    assert may_grow([StepOp(OpCall("aten::view", (whole,), (flat,))), cat(1000)])
    assert not may_grow([cat(400, added=1100)]) and not may_grow([cat(1000, source="")])
