"""``_foreach_*`` operators and fused optimizers: element-wise work over lists of tensors."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.formulas.pointwise import cost_of, variant
from gobrrr.work.formulas.pointwise_table import POINTWISE
from gobrrr.work.registry import add_formula, formula
from gobrrr.work.traffic import (
    account,
    arithmetic_dtype,
    is_float,
    is_inplace,
    list_at,
    tensors_in,
)
from gobrrr.work.traits import Role, Space, describe
from gobrrr.work.weights import DIVIDE, SQUARE_ROOT

# Names of the table that exist as ``_foreach_*``.
FOREACH = frozenset(
    """
    abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min cos cosh div erf erfc exp
    expm1 floor frac lerp lgamma log log10 log1p log2 maximum minimum mul neg pow reciprocal
    round rsqrt sigmoid sign sin sinh sqrt sub tan tanh trunc
    """.split()  # noqa: SIM905
)


def foreach(call: OpCall) -> Work:
    """``_foreach_<op>(self[], other[] or scalar, ...)``: the element-wise op on each tensor."""
    name = call.name.removeprefix("aten::_foreach_").removesuffix("_")
    # ``alpha`` and exponents stand where they do in the plain operator.
    chosen = variant(OpCall(f"aten::{name}", call.args))
    cost = chosen[1] if chosen else cost_of(POINTWISE[name])
    targets = list_at(call, 0)
    others = tensors_in(call.args[1:])
    return _over_list(call, targets, others, cost.flops, cost.special)


def _over_list(
    call: OpCall, targets: list[TensorSpec], others: list[TensorSpec], flops: float, special: float
) -> Work:
    inplace = is_inplace(call)
    elements = _float_elements(targets)
    writes: Sequence[TensorSpec] = () if inplace else (call.outputs or targets)
    return account(
        others if inplace else [*targets, *others],
        # A new tensor like each of the list where the results were not recorded.
        writes if call.outputs else [TensorSpec(s.shape, s.dtype) for s in writes],
        targets if inplace else (),
        vector=flops * elements,
        special=special * elements,
        dtype=arithmetic_dtype(targets[0].dtype) if targets else "",
        op_class="elementwise",
        fresh=not inplace,
    )


def _float_elements(specs: Sequence[TensorSpec]) -> float:
    return float(sum(s.numel for s in specs if not s.dtype or is_float(s.dtype)))


for _name in sorted(FOREACH):
    add_formula((f"aten::_foreach_{_name}", f"aten::_foreach_{_name}_"), foreach)


@formula("aten::_foreach_copy_", "aten::_foreach_copy")
def foreach_copy(call: OpCall) -> Work:
    """``(self[], src[])``: ``src`` read, ``self`` written and not read."""
    targets, sources = list_at(call, 0), list_at(call, 1)
    dtype = arithmetic_dtype(targets[0].dtype) if targets else ""
    return account(sources, targets, dtype=dtype, op_class="movement", fresh=False)


@formula("aten::_foreach_zero_", "aten::_foreach_zero", "aten::_foreach_clone")
def foreach_zero(call: OpCall) -> Work:
    """Written, not read; ``clone`` reads as well."""
    targets = list_at(call, 0)
    dtype = arithmetic_dtype(targets[0].dtype) if targets else ""
    reads = targets if call.name.endswith("clone") else []
    writes = call.outputs or targets
    return account(reads, writes, dtype=dtype, op_class="movement", fresh=not is_inplace(call))


@formula("aten::_foreach_norm", "aten::_foreach_max", "aten::_foreach_powsum")
def foreach_norm(call: OpCall) -> Work:
    """One number per tensor: square and add (a comparison for the maximum), and a root."""
    targets = list_at(call, 0)
    root = call.name.endswith("norm")
    outputs = call.outputs or [TensorSpec((), spec.dtype) for spec in targets]
    per_element = 1 if call.name.endswith("max") else 2
    return account(
        targets, outputs,
        vector=per_element * _float_elements(targets) + (SQUARE_ROOT * len(targets) if root else 0),
        dtype=arithmetic_dtype(targets[0].dtype) if targets else "", op_class="normalisation",
    )  # fmt: skip


# Fused optimizers: one pass over parameters, gradients and state.


@formula("aten::_fused_adam_", "aten::_fused_adamw_", "aten::_fused_adam", "aten::_fused_adamw")
def fused_adam(call: OpCall) -> Work:
    """``(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, lr, b1, b2, wd, eps, ...)``.

    Per element: first moment 3 (a lerp); second moment 4 (two scalings, a square, an addition);
    denominator a square root, a scaling, an addition; update a division, a multiplication, a
    subtraction; weight decay 1 decoupled (a scaling), 2 as a gradient; AMSGrad a maximum.
    """
    params, grads, m, v, v_max = (list_at(call, i) for i in range(5))
    decay = call.args[9] if len(call.args) > 9 else None
    per_element = 3 + 4 + (SQUARE_ROOT + 2) + (DIVIDE + 2)
    if decay != 0:
        per_element += 1 if "adamw" in call.name else 2
    per_element += 1 if v_max else 0
    # The steps and a gradient scale are scalars: read, of no weight.
    return _fused(params, [*grads, *list_at(call, 5)], [*params, *m, *v, *v_max], per_element)


@formula("aten::_fused_sgd_", "aten::_fused_sgd")
def fused_sgd(call: OpCall) -> Work:
    """``(params, grads, momentum_buffers, weight_decay, momentum, lr, dampening, nesterov, ...)``.

    Per element: update 2; momentum 3; weight decay 2; Nesterov 2.
    """
    params, grads, buffers = (list_at(call, i) for i in range(3))
    decay = call.args[3] if len(call.args) > 3 else None
    nesterov = len(call.args) > 7 and call.args[7] is True
    per_element = 2 + (3 if buffers else 0) + (2 if decay != 0 else 0) + (2 if nesterov else 0)
    return _fused(params, grads, [*params, *buffers], per_element)


@formula("aten::_fused_adagrad_", "aten::_fused_adagrad")
def fused_adagrad(call: OpCall) -> Work:
    """``(params, grads, state_sums, steps, lr, lr_decay, weight_decay, ...)``.

    Per element: the sum of squares 2; a square root, an addition, a division, a multiplication and
    a subtraction; weight decay 2.
    """
    params, grads, sums, steps = (list_at(call, i) for i in range(4))
    decay = call.args[6] if len(call.args) > 6 else None
    per_element = 2 + SQUARE_ROOT + DIVIDE + 3 + (2 if decay != 0 else 0)
    return _fused(params, [*grads, *steps], [*params, *sums], per_element)


def _fused(
    params: list[TensorSpec],
    reads: list[TensorSpec],
    updates: list[TensorSpec],
    per_element: float,
) -> Work:
    elements = _float_elements(params)
    return account(
        reads, (), updates, vector=per_element * elements,
        dtype=arithmetic_dtype(params[0].dtype) if params else "", op_class="elementwise",
        fresh=False,
    )  # fmt: skip


@formula("aten::_amp_foreach_non_finite_check_and_unscale_")
def amp_unscale(call: OpCall) -> Work:
    """``(grads, found_inf, inv_scale)``: a comparison and a multiplication per gradient."""
    grads = list_at(call, 0)
    return _fused(grads, [], [*grads, *tensors_in(call.args[1:])], 2)


@formula("aten::_amp_update_scale_")
def amp_update_scale(call: OpCall) -> Work:
    """``(scale, growth_tracker, found_inf, ...)``: scalars, one multiplication."""
    scalars = call.tensors
    return account(
        scalars[2:], (), scalars[:2], vector=1.0, dtype="float32", op_class="elementwise",
        fresh=False,
    )  # fmt: skip


def _lists(call: OpCall) -> Space:
    return Space(Role.POINTWISE, _elements(call))


def _lists_reduced(call: OpCall) -> Space:
    return Space(Role.EXTERN, _elements(call))


def _elements(call: OpCall) -> int:
    if not isinstance(call.args[0], tuple):
        raise TypeError("no list")
    return sum(spec.numel for spec in list_at(call, 0))


_BY_ELEMENT = " ".join(f"_foreach_{name} _foreach_{name}_" for name in sorted(FOREACH))
describe(
    f"{_BY_ELEMENT} _foreach_copy_ _foreach_copy _foreach_zero_ _foreach_zero _foreach_clone",
    fusion=_lists,
    passes="lists",
)
describe("_foreach_norm _foreach_max _foreach_powsum", fusion=_lists_reduced, passes="lists")
describe(
    "_fused_adam_ _fused_adamw_ _fused_adam _fused_adamw _fused_sgd_ _fused_sgd _fused_adagrad_ "
    "_fused_adagrad",
    passes="lists",
)
