"""Softmax and the norms: statistics over some elements, then a map over all of them.

Least traffic: the input read once and the result written once, whatever the size of a row; a
kernel can keep a row on the chip.
"""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.formulas.contractions import output_mask
from gobrrr.work.registry import add_formula, formula, qualified
from gobrrr.work.traffic import (
    account,
    arithmetic_dtype,
    integers,
    is_float,
    need,
    product,
    results,
    tensor_at,
)
from gobrrr.work.traits import Role, Space, SpaceOf, describe, tensor_of
from gobrrr.work.weights import DIVIDE, FUNCTION, SQUARE_ROOT

RSQRT = DIVIDE + SQUARE_ROOT


def _normalise(
    reads: Sequence[TensorSpec | None],
    writes: Sequence[TensorSpec],
    *,
    vector: float,
    special: float,
    dtype: str,
    fresh: bool = True,
) -> Work:
    return account(
        [spec for spec in reads if spec is not None],
        writes,
        vector=vector,
        special=special,
        dtype=arithmetic_dtype(dtype),
        op_class="normalisation",
        fresh=fresh,
    )


def _plain(spec: TensorSpec, dtype: str = "") -> TensorSpec:
    return TensorSpec(spec.shape, dtype or spec.dtype)


# Softmax


def _softmax(call: OpCall, arity: int, per_element: int, per_row: int, *, logarithm: bool) -> Work:
    x = need(call, 0)
    dim = call.args[1] if len(call.args) > 1 else None
    length = x.shape[dim] if isinstance(dim, int) and x.shape else x.shape[-1] if x.shape else 1
    rows = x.numel // max(length, 1)
    # ``softmax(x, dim, dtype)`` converts on the way; only the output tells the dtype.
    out, fresh = results(call, arity, x.shape, x.dtype if is_float(x.dtype) else "float32")
    return _normalise(
        [x],
        out,
        vector=float(x.numel * per_element + rows * per_row),
        special=float(x.numel + (rows if logarithm else 0)),
        dtype=out[0].dtype,
        fresh=fresh,
    )


@formula("aten::_softmax", "aten::_safe_softmax")
def softmax(call: OpCall) -> Work:
    """Per element: maximum, subtraction, exp, sum, times the reciprocal of the row's sum."""
    return _softmax(call, 3, 4 + FUNCTION, DIVIDE, logarithm=False)


@formula("aten::_log_softmax")
def log_softmax(call: OpCall) -> Work:
    """Per element: maximum, subtraction, exp, sum, subtraction of the row's log."""
    return _softmax(call, 3, 4 + FUNCTION, FUNCTION + 1, logarithm=True)


@formula("aten::_softmax_backward_data")
def softmax_backward(call: OpCall) -> Work:
    """``y * (g - sum(g * y))``: 4 per element. ``(grad_output, output, dim, input_dtype)``."""
    grad, y = need(call, 0), need(call, 1)
    out, fresh = results(call, 4, y.shape, grad.dtype)
    return _normalise(
        [grad, y], out, vector=4.0 * y.numel, special=0.0, dtype=grad.dtype, fresh=fresh
    )


@formula("aten::_log_softmax_backward_data")
def log_softmax_backward(call: OpCall) -> Work:
    """``g - exp(y) * sum(g)``: sum, exp, multiplication, subtraction."""
    grad, y = need(call, 0), need(call, 1)
    out, fresh = results(call, 4, y.shape, grad.dtype)
    return _normalise(
        [grad, y], out, vector=float((3 + FUNCTION) * y.numel), special=float(y.numel),
        dtype=grad.dtype, fresh=fresh,
    )  # fmt: skip


# Layer and RMS norm


@formula("aten::native_layer_norm")
def layer_norm(call: OpCall) -> Work:
    """``(x, normalized_shape, weight, bias, eps)`` -> result, mean, rstd.

    Per element: sum; square and sum; subtract, multiply; multiply and add of the affine part.
    """
    x, weight, bias = need(call, 0), tensor_at(call, 2), tensor_at(call, 3)
    sizes = integers(call.args[1])
    if sizes is None:
        sizes = weight.shape if weight is not None else x.shape[-1:]
    rows = x.numel // max(product(sizes), 1)
    statistic = TensorSpec((rows,), arithmetic_dtype(x.dtype))
    outputs = call.outputs or (_plain(x), statistic, statistic)
    affine = (weight is not None) + (bias is not None)
    return _normalise(
        [x, weight, bias], outputs, vector=float(x.numel * (5 + affine) + rows * (4 + RSQRT)),
        special=0.0, dtype=x.dtype,
    )  # fmt: skip


@formula("aten::native_layer_norm_backward")
def layer_norm_backward(call: OpCall) -> Work:
    """``(grad, x, normalized_shape, mean, rstd, weight, bias, output_mask)``.

    x-hat: 2 per element. Input: times weight, two sums of products (3), then 4 to combine.
    Weight: product and sum; bias: sum.
    """
    grad, x = need(call, 0), need(call, 1)
    mean, rstd, weight = tensor_at(call, 3), tensor_at(call, 4), tensor_at(call, 5)
    mask = output_mask(call, 7)
    per_element = 2 + (8 if mask[0] else 0) + (2 if mask[1] else 0) + (1 if mask[2] else 0)
    outputs = [_plain(x)] if mask[0] else []
    if weight is not None:
        outputs += [_plain(weight)] * (mask[1] + mask[2])
    return _normalise(
        [grad, x, mean, rstd, weight if mask[0] else None], outputs,
        vector=float(x.numel * per_element), special=0.0, dtype=x.dtype,
    )  # fmt: skip


@formula("aten::_fused_rms_norm")
def rms_norm(call: OpCall) -> Work:
    """``(x, normalized_shape, weight, eps)`` -> result, rstd: square, sum, multiply, multiply."""
    x, weight = need(call, 0), tensor_at(call, 2)
    sizes = integers(call.args[1]) or (weight.shape if weight is not None else x.shape[-1:])
    rows = x.numel // max(product(sizes), 1)
    outputs = call.outputs or (_plain(x), TensorSpec((rows,), arithmetic_dtype(x.dtype)))
    return _normalise(
        [x, weight], outputs,
        vector=float(x.numel * (3 + (weight is not None)) + rows * (2 + RSQRT)),
        special=0.0, dtype=x.dtype,
    )  # fmt: skip


@formula("aten::rms_norm", composite=True)
def rms_norm_composite(call: OpCall) -> Work:
    """As ``_fused_rms_norm``, without the statistics kept."""
    x, weight = need(call, 0), tensor_at(call, 2)
    return rms_norm(OpCall(call.name, (x, call.args[1], weight, None), (_plain(x),)))


@formula("aten::_fused_rms_norm_backward")
def rms_norm_backward(call: OpCall) -> Work:
    """``(grad, x, normalized_shape, rstd, weight, output_mask)``."""
    grad, x, rstd, weight = need(call, 0), need(call, 1), tensor_at(call, 3), tensor_at(call, 4)
    mask = call.args[5]
    wanted = mask if isinstance(mask, tuple) else (True, weight is not None)
    # x-hat 1; input: times weight, product and sum, then 3 to combine; weight: product and sum.
    per_element = 1 + (6 if wanted[0] else 0) + (2 if wanted[1] else 0)
    outputs = [_plain(x)] if wanted[0] else []
    if wanted[1] and weight is not None:
        outputs.append(_plain(weight))
    return _normalise(
        [grad, x, rstd, weight], outputs, vector=float(x.numel * per_element), special=0.0,
        dtype=x.dtype,
    )  # fmt: skip


def _rows_along(dim_at: int) -> SpaceOf:
    """Rows along the dimension that this argument names."""

    def rows(call: OpCall) -> Space:
        x, dim = tensor_of(call, 0), call.args[dim_at]
        if not isinstance(dim, int):
            raise TypeError("dimension not recorded")
        row = x.shape[dim] if x.shape else 1
        return Space(Role.NORMALISATION, x.numel, row, dim in (-1, len(x.shape) - 1))

    return rows


def _trailing_rows(shape_at: int) -> SpaceOf:
    """Rows of the trailing dimensions that this argument gives."""

    def rows(call: OpCall) -> Space:
        x, shape = tensor_of(call, 0), integers(call.args[shape_at])
        return Space(Role.NORMALISATION, x.numel, product(shape) if shape else x.shape[-1])

    return rows


add_formula(qualified("softmax special_softmax"), softmax, composite=True)
add_formula(qualified("log_softmax special_log_softmax"), log_softmax, composite=True)
add_formula(qualified("layer_norm"), layer_norm, composite=True)

describe(
    "_softmax _log_softmax _safe_softmax softmax log_softmax",
    fusion=_rows_along(1), passes="softmax",
)  # fmt: skip
describe(
    "_softmax_backward_data _log_softmax_backward_data", fusion=_rows_along(2), passes="softmax"
)
describe("_safe_softmax", rate="_softmax")
describe(
    "native_layer_norm layer_norm _fused_rms_norm rms_norm",
    fusion=_trailing_rows(1), passes="layer_norm",
)  # fmt: skip
describe(
    "native_layer_norm_backward _fused_rms_norm_backward",
    fusion=_trailing_rows(2), passes="layer_norm_backward",
)  # fmt: skip
