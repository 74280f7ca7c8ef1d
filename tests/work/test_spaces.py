"""What operators iterate over, which decides what can be fused with them."""

from __future__ import annotations

import pytest

from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
from gobrrr.work.traits import Role, Space, space_of

from .calls import tensor


def space(name: str, *args: Arg, outputs: tuple[TensorSpec, ...] | None = None) -> Space | None:
    return space_of(OpCall(f"aten::{name}", args, outputs))


X = tensor(4, 8)


@pytest.mark.parametrize(
    ("name", "args", "outputs", "row", "inner"),
    [
        ("sum", (X, (1,), False, None), None, 8, True),
        ("sum", (X, (0,), False, None), None, 4, False),
        ("sum", (X, (-2,), True, None), None, 4, False),
        ("sum", (X, (0, 1), False, None), None, 32, True),
        ("sum", (X, None), None, 32, None),
        # By what is written.
        ("sum", (X, (1,), False, None), (tensor(4),), 8, True),
        ("sum", (X, (0,), False, None), (tensor(8),), 4, False),
        ("sum", (X, None), (tensor(),), 32, True),
        ("linalg_vector_norm", (X, 2, (1,), False, None), None, 8, True),
    ],
)
def test_a_reduction_takes_a_row_for_each_result(
    name: str,
    args: tuple[Arg, ...],
    outputs: tuple[TensorSpec, ...] | None,
    row: int,
    inner: bool | None,
) -> None:
    found = space(name, *args, outputs=outputs)
    assert found is not None
    assert (found.role, found.elements, found.row) == (Role.REDUCTION, 32, row)
    assert inner is None or found.inner is inner


def test_a_maximum_of_two_tensors_is_of_elements() -> None:
    found = space("max", X, X, outputs=(X,))
    assert found is not None
    assert (found.role, found.elements, found.row) == (Role.POINTWISE, 32, 1)


def test_dimensions_that_a_trace_left_out_leave_a_row_unknown() -> None:
    assert space("sum", X, "?", False, None) is None


def test_rows_of_softmaxes_and_norms() -> None:
    last, first = space("_softmax", X, -1, False), space("_softmax", X, 0, False)
    assert last == Space(Role.NORMALISATION, 32, 8, True)
    assert first == Space(Role.NORMALISATION, 32, 4, False)
    assert space("_softmax", X, 1, False) == last
    norm = space("native_layer_norm", tensor(2, 4, 8), (4, 8), None, None, 1e-5)
    assert norm is not None and (norm.elements, norm.row) == (64, 32)


def test_small_windows_are_read_in_place() -> None:
    x = tensor(1, 2, 12, 12)
    small = space("avg_pool2d", x, (5, 5), (1, 1), (0, 0), False, True, None,
                  outputs=(tensor(1, 2, 8, 8),))  # fmt: skip
    large = space("avg_pool2d", x, (6, 5), (1, 1), (0, 0), False, True, None,
                  outputs=(tensor(1, 2, 7, 8),))  # fmt: skip
    assert small == Space(Role.POINTWISE, 128)
    assert large == Space(Role.EXTERN, 112)
    # One number stands for both sides.
    square = space("avg_pool2d", x, (6,), (1, 1), outputs=(tensor(1, 2, 7, 7),))
    assert square is not None and square.role is Role.EXTERN
    whole = space("_adaptive_avg_pool2d", x, (1, 1))
    assert whole is not None
    assert (whole.role, whole.elements, whole.row) == (Role.REDUCTION, 288, 144)
    parts = space("_adaptive_avg_pool2d", x, (2, 1))
    assert parts is not None and parts.role is Role.EXTERN
