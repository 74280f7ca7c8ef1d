"""Losses and their gradients."""

from __future__ import annotations

from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.registry import formula, qualified
from gobrrr.work.traffic import account, arithmetic_dtype, destinations, need, tensor_at
from gobrrr.work.traits import Role, Space, describe, tensor_of
from gobrrr.work.weights import FUNCTION

# ``at::Reduction``; 2 is a sum.
NONE, MEAN = 0, 1


@formula(*qualified("nll_loss_forward nll_loss2d_forward"))
def nll_loss(call: OpCall) -> Work:
    """``(log_probs, target, weight, reduction, ignore_index)`` -> loss, total weight.

    One log-probability read per target; a negation and an addition each.
    """
    x, target, weight = need(call, 0), need(call, 1), tensor_at(call, 2)
    picked = TensorSpec((target.numel,), x.dtype)
    per_target: tuple[int, ...] = target.shape if _reduction(call, 3) == NONE else ()
    out = destinations(call, 5) or list(call.outputs or ())
    out = out or [TensorSpec(per_target, x.dtype), TensorSpec((), x.dtype)]
    reads = [picked, target, *((weight,) if weight is not None else ())]
    return account(
        reads, out, vector=2.0 * target.numel, dtype=arithmetic_dtype(x.dtype),
        op_class="other",
    )  # fmt: skip


def _reduction(call: OpCall, index: int) -> Arg:
    return call.args[index] if len(call.args) > index else None


@formula(*qualified("nll_loss_backward nll_loss2d_backward"))
def nll_loss_backward(call: OpCall) -> Work:
    """``(grad, log_probs, target, weight, reduction, ignore_index, total_weight)``.

    The log-probabilities' values are not needed, only their shape: zeros written, and one number
    per target.
    """
    grad, x, target = need(call, 0), need(call, 1), need(call, 2)
    weight, total = tensor_at(call, 3), tensor_at(call, 6)
    out = destinations(call, 7) or list(call.outputs or [TensorSpec(x.shape, x.dtype)])
    reads = [spec for spec in (grad, target, weight, total) if spec is not None]
    return account(
        reads, out, vector=2.0 * target.numel, dtype=arithmetic_dtype(x.dtype), op_class="other"
    )


# FLOPs and functions per element, forward and backward, beside one addition to reduce.
# ``mse``: subtract, square. ``huber``: subtract, compare, and a square or a product. ``bce``: two
# logarithms and 4. ``kl``: a logarithm, a subtraction, a product.
_FORWARD: dict[str, tuple[float, int, int]] = {
    "mse_loss": (2, 0, 3), "l1_loss": (2, 0, 3), "smooth_l1_loss": (4, 0, 4),
    "huber_loss": (4, 0, 4), "binary_cross_entropy": (4 + 2 * 8, 2, 4),
    "soft_margin_loss": (3 + 2 * 8, 2, 3),
    # (1 - y) x + log(1 + exp(-x)), kept from overflowing by a minimum.
    "binary_cross_entropy_with_logits": (6 + 2 * 8, 2, 5),
}  # fmt: skip
_BACKWARD: dict[str, tuple[float, int, int]] = {
    "mse_loss_backward": (3, 0, 4), "l1_loss_backward": (2, 0, 4),
    "smooth_l1_loss_backward": (3, 0, 5), "huber_loss_backward": (3, 0, 5),
    "binary_cross_entropy_backward": (4 + 4, 0, 5), "soft_margin_loss_backward": (4 + 8 + 4, 1, 4),
}  # fmt: skip


# Where the reduction stands, if it is not the third argument, or the fourth of a gradient.
_REDUCTION_AT = {
    "binary_cross_entropy": 3, "binary_cross_entropy_with_logits": 4,
    "binary_cross_entropy_backward": 4,
}  # fmt: skip


def reduction_of(call: OpCall) -> int:
    """``at::Reduction`` of an element-wise loss or of its gradient; the mean if not recorded."""
    name = call.name.removeprefix("aten::")
    found = _reduction(call, _REDUCTION_AT.get(name, 3 if name.endswith("_backward") else 2))
    return found if isinstance(found, int) else MEAN


@formula(*(f"aten::{name}" for name in _FORWARD))
def elementwise_loss(call: OpCall) -> Work:
    """``(input, target, [weight,] reduction, ...)``."""
    flops, special, arity = _FORWARD[call.name.removeprefix("aten::")]
    x = need(call, 0)
    inputs = [spec for spec in (tensor_at(call, i) for i in range(arity)) if spec is not None]
    reduced = reduction_of(call) != NONE
    shape: tuple[int, ...] = () if reduced else x.shape
    out = destinations(call, arity) or list(call.outputs or [TensorSpec(shape, x.dtype)])
    return account(
        inputs, out, vector=x.numel * (flops + (1 if reduced else 0)),
        special=float(special * x.numel), dtype=arithmetic_dtype(x.dtype),
        op_class="normalisation" if reduced else "elementwise",
    )  # fmt: skip


@formula(*(f"aten::{name}" for name in _BACKWARD))
def elementwise_loss_backward(call: OpCall) -> Work:
    """``(grad_output, input, target, [weight,] reduction, ...)``: the input's gradient."""
    flops, special, arity = _BACKWARD[call.name.removeprefix("aten::")]
    x = need(call, 1)
    inputs = [spec for spec in (tensor_at(call, i) for i in range(arity)) if spec is not None]
    out = destinations(call, arity) or list(call.outputs or [TensorSpec(x.shape, x.dtype)])
    return account(
        inputs, out, vector=x.numel * flops, special=float(special * x.numel),
        dtype=arithmetic_dtype(x.dtype), op_class="elementwise",
    )  # fmt: skip


@formula("aten::multi_margin_loss", "aten::multi_margin_loss_backward")
def multi_margin_loss(call: OpCall) -> Work:
    """``([grad,] input (n, c), target, p, margin, weight, reduction)``.

    For each class: subtract the target's score, add the margin, compare with 0, and a sum or, in
    the gradient, a product.
    """
    backward = call.name.endswith("backward")
    x = need(call, 1 if backward else 0)
    reads = list(call.tensors[: 4 if backward else 3])
    rows = x.shape[:1] if len(x.shape) > 1 else ()
    reduced = _reduction(call, 6 if backward else 5) != NONE
    shape = x.shape if backward else (() if reduced else rows)
    out = list(call.outputs or [TensorSpec(shape, x.dtype)])
    return account(
        reads, out, vector=4.0 * x.numel, dtype=arithmetic_dtype(x.dtype), op_class="other"
    )


@formula("aten::_ctc_loss")
def ctc_loss(call: OpCall) -> Work:
    """``(log_probs (t, b, c), targets, ...)`` -> loss, log_alpha ``(b, t, 2 s + 1)``.

    The forward recursion adds three terms in the log domain for each state: 3 exp, a log, 6 more.
    """
    x = need(call, 0)
    if not call.outputs:
        raise ValueError("the length of the targets was not recorded")
    states = call.outputs[-1].numel
    return account(
        call.tensors, call.outputs, vector=float(states * (4 * FUNCTION + 6)),
        special=4.0 * states, dtype=arithmetic_dtype(x.dtype), op_class="other",
    )  # fmt: skip


@formula("aten::_ctc_loss_backward")
def ctc_loss_backward(call: OpCall) -> Work:
    """``(grad, log_probs, ..., log_alpha, ...)``: the same recursion, and a term per class."""
    x = need(call, 1)
    states = max((spec.numel for spec in call.tensors[2:] if len(spec.shape) == 3), default=0)
    out = call.outputs or (TensorSpec(x.shape, x.dtype),)
    return account(
        call.tensors, out,
        vector=float(states * (5 * FUNCTION + 8) + x.numel * (FUNCTION + 3)),
        special=float(5 * states + x.numel), dtype=arithmetic_dtype(x.dtype), op_class="other",
    )  # fmt: skip


def _all_reduced(call: OpCall) -> Space:
    x = tensor_of(call, 0)
    elements = x.numel if "nll" not in call.name else max(1, x.numel // max(1, x.shape[1]))
    return Space(Role.REDUCTION, elements, elements)


describe(
    "mse_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits "
    "nll_loss_forward nll_loss2d_forward kl_div soft_margin_loss",
    fusion=_all_reduced,
)
describe(
    "mse_loss_backward smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward "
    "nll_loss_backward nll_loss2d_backward",
    fusion=Role.POINTWISE,
)
describe("nll_loss_forward nll_loss_backward", passes="loss")
describe(" ".join(_FORWARD), passes="elementwise_loss")
describe(" ".join(_BACKWARD), passes="elementwise_loss_backward")


@formula(*qualified("multilabel_margin_loss_forward multilabel_margin_loss_backward"))
def multilabel_margin_loss(call: OpCall) -> Work | None:
    """``(self, target, reduction)`` -> loss, is_target; ``(grad, self, target, ...)`` -> gradient.

    Each class against each label of its row. How many labels there are depends on the data: one.
    """
    if not call.outputs:
        return None
    x = need(call, 1 if call.name.endswith("backward") else 0)
    return account(
        list(call.tensors), list(call.outputs), vector=4.0 * x.numel,
        dtype=arithmetic_dtype(x.dtype), op_class="other",
    )  # fmt: skip


describe("_ctc_loss _ctc_loss_backward", passes="ctc_loss")
