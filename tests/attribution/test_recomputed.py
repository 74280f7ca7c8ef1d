"""What a backward pass computes again, and what it computes for a further derivative."""

from __future__ import annotations

from gobrrr.attribution.recomputed import SeenOp, recomputed

SHAPES = ((64, 512), (512, 512))
FORWARD = [SeenOp("aten::addmm", SHAPES, "forward", False)] * 2
OWN = [SeenOp("aten::mm", SHAPES, "backward", False)] * 4


def test_a_repeated_forward_pass_is_computed_again() -> None:
    again = [SeenOp("aten::addmm", SHAPES, "backward", True)] * 2
    keeping = SeenOp("aten::detach", SHAPES, "backward", True)
    assert recomputed([*FORWARD, *again, keeping, *OWN]) == {2, 3}
    # More of them than the forward pass has cannot repeat it.
    assert recomputed([*FORWARD, *again, *again, *OWN]) == frozenset()


def test_a_backward_pass_records_nothing_unless_it_is_to_be_differentiated() -> None:
    assert recomputed([*FORWARD, *OWN]) == frozenset()
    differentiated = [op._replace(records=True) for op in OWN]
    squares = [op._replace(name="aten::mm") for op in FORWARD]
    assert recomputed([*squares, *differentiated]) == frozenset()
