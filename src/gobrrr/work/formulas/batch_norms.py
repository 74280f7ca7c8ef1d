"""Batch, instance and group norm, of every backend, forward and backward.

Per element in training: sum; subtract, square and sum; then one multiplication and one addition,
into which scale, shift and statistics fold. In evaluation those last two alone.
"""

from __future__ import annotations

from typing import NamedTuple

from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.formulas.contractions import output_mask
from gobrrr.work.registry import add_formula, formula, qualified
from gobrrr.work.traffic import account, arithmetic_dtype, need, tensor_at
from gobrrr.work.traits import Role, Space, describe, tensor_of
from gobrrr.work.weights import DIVIDE, SQUARE_ROOT

STATISTICS = 4
SCALE_AND_SHIFT = 2
RSQRT = DIVIDE + SQUARE_ROOT


class Variant(NamedTuple):
    """Where an operator says whether it trains: a position, or a constant."""

    training: int | bool
    composite: bool = False
    running: bool = True


BATCH_NORMS: dict[str, Variant] = {
    "aten::native_batch_norm": Variant(5),
    "aten::cudnn_batch_norm": Variant(5),
    "aten::miopen_batch_norm": Variant(5),
    "aten::_native_batch_norm_legit": Variant(5),
    "aten::_native_batch_norm_legit_no_training": Variant(False),
    "aten::_batch_norm_with_update": Variant(True),
    "aten::_batch_norm_no_update": Variant(False),
    "aten::batch_norm": Variant(5, composite=True),
    "aten::_batch_norm_impl_index": Variant(5, composite=True),
    "aten::instance_norm": Variant(5, composite=True),
}


def batch_norm(call: OpCall) -> Work:
    """``(x, weight, bias, running_mean, running_var, training, momentum, eps, ...)``.

    In training the running statistics, where given, are updated in place.
    """
    entry = BATCH_NORMS[call.name]
    x, weight, bias = need(call, 0), tensor_at(call, 1), tensor_at(call, 2)
    mean, var = tensor_at(call, 3), tensor_at(call, 4)
    flag = entry.training
    if not isinstance(flag, bool):
        # ``_native_batch_norm_legit.no_stats`` has no running statistics: the flag comes third.
        position = 3 if isinstance(call.args[3], bool) else flag
        flag = call.args[position] is True
    channels = x.shape[1] if len(x.shape) > 1 else 1
    statistic = TensorSpec((channels,), arithmetic_dtype(x.dtype))
    saved = [statistic, statistic] if flag and not entry.composite else []
    outputs = list(call.outputs or [TensorSpec(x.shape, x.dtype), *saved])
    running = [spec for spec in (mean, var) if spec is not None]
    reads = [x, *(spec for spec in (weight, bias) if spec is not None)]
    per_element = SCALE_AND_SHIFT + (STATISTICS if flag else 0)
    return account(
        reads if flag else [*reads, *running],
        [spec for spec in outputs if spec.numel],
        running if flag else (),
        vector=float(x.numel * per_element + channels * (4 + RSQRT)),
        dtype=arithmetic_dtype(x.dtype),
        op_class="normalisation",
    )


for _name, _entry in BATCH_NORMS.items():
    add_formula((_name,), batch_norm, composite=_entry.composite)


@formula("aten::native_batch_norm_backward", "aten::batch_norm_backward")
def native_batch_norm_backward(call: OpCall) -> Work:
    """``(grad, x, weight, mean, var, save_mean, save_invstd, train, eps, output_mask, ...)``."""
    return _backward(
        call, need(call, 0), need(call, 1), tensor_at(call, 2), 5, output_mask(call, 9),
        train=call.args[7] is True,
    )  # fmt: skip


@formula("aten::cudnn_batch_norm_backward", "aten::miopen_batch_norm_backward")
def cudnn_batch_norm_backward(call: OpCall) -> Work:
    """``(x, grad, weight, running_mean, running_var, save_mean, save_var, eps, ...)``."""
    everything = (True, True, True)
    return _backward(call, need(call, 1), need(call, 0), tensor_at(call, 2), 5, everything)


def _backward(
    call: OpCall,
    grad: TensorSpec,
    x: TensorSpec,
    weight: TensorSpec | None,
    saved_at: int,
    mask: tuple[bool, bool, bool],
    *,
    train: bool = True,
) -> Work:
    # Both gradients of the parameters come from two sums, of g and of g * x-hat: 2 + 2 per
    # element with x-hat itself. The input's gradient in training subtracts their means: 4 more.
    sums = train or mask[1] or mask[2]
    per_element = (4 if sums else 0) + ((4 if train else 1) if mask[0] else 0)
    saved = [spec for i in (saved_at, saved_at + 1) if (spec := tensor_at(call, i)) is not None]
    reads = [grad, *((x,) if sums else ()), *saved]
    outputs = [TensorSpec(x.shape, x.dtype)] if mask[0] else []
    if weight is not None:
        reads.append(weight)
        outputs += [TensorSpec(weight.shape, weight.dtype)] * (mask[1] + mask[2])
    return account(
        reads, outputs, vector=float(x.numel * per_element), dtype=arithmetic_dtype(x.dtype),
        op_class="normalisation",
    )  # fmt: skip


@formula("aten::native_group_norm")
def group_norm(call: OpCall) -> Work:
    """``(x, weight, bias, n, c, hxw, group, eps)`` -> result, mean and rstd ``(n, group)``."""
    x, weight, bias = need(call, 0), tensor_at(call, 1), tensor_at(call, 2)
    groups = call.args[6]
    if not isinstance(groups, int):
        raise ValueError("the number of groups was not recorded")
    return _group_norm(call, x, weight, bias, x.shape[0] * groups, saved=2)


@formula("aten::group_norm", composite=True)
def group_norm_composite(call: OpCall) -> Work:
    """``(x, num_groups, weight, bias, eps, cudnn_enabled)``."""
    x, groups = need(call, 0), call.args[1]
    if not isinstance(groups, int):
        raise ValueError("the number of groups was not recorded")
    rows = x.shape[0] * groups
    return _group_norm(call, x, tensor_at(call, 2), tensor_at(call, 3), rows, saved=0)


def _group_norm(
    call: OpCall,
    x: TensorSpec,
    weight: TensorSpec | None,
    bias: TensorSpec | None,
    rows: int,
    saved: int,
) -> Work:
    statistic = TensorSpec((rows,), x.dtype)
    outputs = call.outputs or (TensorSpec(x.shape, x.dtype), *[statistic] * saved)
    return account(
        [x, *(spec for spec in (weight, bias) if spec is not None)], outputs,
        vector=float(x.numel * (STATISTICS + SCALE_AND_SHIFT) + rows * (4 + RSQRT)),
        dtype=arithmetic_dtype(x.dtype), op_class="normalisation",
    )  # fmt: skip


@formula("aten::native_group_norm_backward")
def group_norm_backward(call: OpCall) -> Work:
    """``(grad, x, mean, rstd, weight, n, c, hxw, group, output_mask)``."""
    return _backward(
        call, need(call, 0), need(call, 1), tensor_at(call, 4), 2, output_mask(call, 9)
    )


# The pieces of synchronised batch norm


@formula(*qualified("batch_norm_stats batch_norm_update_stats"))
def batch_norm_stats(call: OpCall) -> Work:
    """``(x, ...)`` -> mean and inverse deviation of each channel."""
    x = need(call, 0)
    statistic = TensorSpec((x.shape[1],), arithmetic_dtype(x.dtype))
    return account(
        [x], call.outputs or (statistic, statistic), vector=float(STATISTICS * x.numel),
        dtype=arithmetic_dtype(x.dtype), op_class="normalisation",
    )  # fmt: skip


@formula(
    *qualified(
        "batch_norm_elemt batch_norm_backward_elemt batch_norm_backward_reduce "
        "batch_norm_gather_stats batch_norm_gather_stats_with_counts"
    )
)
def batch_norm_piece(call: OpCall) -> Work:
    """The map over elements, its gradient, the sums of the gradient, and the gathering of ranks."""
    x = need(call, 0)
    inputs = call.tensors
    per_element = {"elemt": SCALE_AND_SHIFT, "backward_elemt": 5, "backward_reduce": 4}.get(
        call.name.removeprefix("aten::batch_norm_"), STATISTICS
    )
    if call.outputs:
        outputs = list(call.outputs)
    elif call.name.endswith("elemt"):
        outputs = [TensorSpec(x.shape, x.dtype)]
    else:
        # Sums or statistics of each channel, next to nothing beside ``x``.
        outputs = [TensorSpec((x.shape[1],), arithmetic_dtype(x.dtype))] * 2
    if "gather" in call.name:
        # ``x`` only lends its shape; the statistics of the ranks are read.
        inputs = inputs[1:]
        elements = sum(spec.numel for spec in inputs)
    else:
        elements = x.numel
    return account(
        inputs, outputs, vector=float(per_element * elements), dtype=arithmetic_dtype(x.dtype),
        op_class="normalisation",
    )  # fmt: skip


def _batch_rows(call: OpCall) -> Space:
    x = tensor_of(call, 0)
    if "no_training" in call.name:
        return Space(Role.POINTWISE, x.numel)
    # ``(input, weight, bias, running_mean, running_var, training, ...)``
    training = next((a for a in call.args if isinstance(a, bool)), None)
    if training is None:
        raise ValueError("not recorded whether it trains")
    if not training:
        return Space(Role.POINTWISE, x.numel)
    channels = x.shape[1] if len(x.shape) > 1 else 1
    return Space(Role.NORMALISATION, x.numel, x.numel // max(1, channels), False)


def _batch_rows_backward(call: OpCall) -> Space:
    x = tensor_of(call, 0)
    return Space(Role.NORMALISATION, x.numel, x.numel // max(1, x.shape[1]), False)


def _group_rows(call: OpCall) -> Space:
    x = tensor_of(call, 0)
    groups = call.args[6] if call.name.endswith("native_group_norm") else call.args[1]
    if not isinstance(groups, int):
        raise TypeError("number of groups not recorded")
    return Space(Role.NORMALISATION, x.numel, x.numel // max(1, x.shape[0] * groups))


_BACKWARD = (
    "native_batch_norm_backward cudnn_batch_norm_backward miopen_batch_norm_backward "
    "batch_norm_backward"
)
describe(
    "native_batch_norm cudnn_batch_norm miopen_batch_norm batch_norm _native_batch_norm_legit "
    "_native_batch_norm_legit_no_training _native_batch_norm_legit_functional "
    "_batch_norm_no_update _batch_norm_with_update",
    fusion=_batch_rows,
    passes="batch_norm",
)
describe(_BACKWARD, fusion=_batch_rows_backward, passes="batch_norm_backward")
describe("native_group_norm group_norm", fusion=_group_rows, passes="group_norm")
describe("native_group_norm_backward", passes="group_norm_backward")
describe("batch_norm_elemt", fusion=Role.POINTWISE)
describe(
    "_native_batch_norm_legit _native_batch_norm_legit_functional _batch_norm_with_update",
    rate="native_batch_norm",
)
describe("batch_norm_backward", rate="native_batch_norm_backward")
