"""Walks of losses: kernels that follow each other, with temporary tensors between them.

Sources: PyTorch's aten/src/ATen/native/Loss.cpp and cuda/Loss.cu. An element-wise loss is written
whole and then reduced by a kernel of its own: ``TensorIterator`` first, ``mean`` or ``sum`` after
it. Its gradient is one kernel, but for binary cross-entropy.
"""

from __future__ import annotations

from math import ceil

from gobrrr.prediction.kernels.walks.successive_walks import (
    BINARY,
    REDUCTION_TRIPS,
    UNARY,
    Kernel,
    in_turn,
)
from gobrrr.prediction.kernels.walks.walk import ONE, Machine, Walk
from gobrrr.timeline.ops import Arg, OpCall
from gobrrr.work.estimate import Work
from gobrrr.work.formulas.losses import MEAN, NONE, reduction_of

# ``(1 - target).mul_(input).sub_(log_sigmoid(input))`` is binary cross-entropy of logits;
# ``neg(target).mul_(input).exp_().log1p_()`` the soft margin.
_FORWARD: dict[str, tuple[Kernel, ...]] = {
    "mse_loss": (BINARY,), "smooth_l1_loss": (BINARY,), "huber_loss": (BINARY,),
    "binary_cross_entropy": (BINARY,), "l1_loss": (BINARY, UNARY),
    "binary_cross_entropy_with_logits": (UNARY, UNARY, BINARY, BINARY),
    "soft_margin_loss": (UNARY, BINARY, UNARY, UNARY),
}  # fmt: skip


def elementwise_loss(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """An element-wise loss, with a reduction or without."""
    name = call.name.removeprefix("aten::")
    kernels = list(_FORWARD[name])
    if _given(call, 2) and name.startswith("binary_cross_entropy"):
        kernels.append(BINARY)  # ``mul_(weight)``
    if name.endswith("with_logits") and _given(call, 3):
        # ``(pos_weight - 1).mul(target).add_(1)``, and a product with the logarithm.
        kernels += [UNARY, UNARY, BINARY]
    return _chain(call, work, machine, kernels, reduced=reduction_of(call) != NONE)


def elementwise_loss_backward(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """The gradient of an element-wise loss: input and target read, the gradient written.

    That of binary cross-entropy is multiplied by a weight and divided by the number of elements
    in place, by kernels of their own.
    """
    kernels = [BINARY]
    if call.name == "aten::binary_cross_entropy_backward":
        kernels += [BINARY] * _given(call, 3)
        kernels += [UNARY] * (reduction_of(call) == MEAN)
    return _chain(call, work, machine, kernels, reduced=False)


def _given(call: OpCall, index: int) -> bool:
    arg: Arg = call.args[index] if len(call.args) > index else None
    return arg is not None and not isinstance(arg, (int, float))


def _chain(
    call: OpCall, work: Work, machine: Machine, kernels: list[Kernel], *, reduced: bool
) -> tuple[Walk, ...]:
    """Kernels one after the other over tensors of the input's size, and ``mean`` or ``sum``."""
    x = call.tensors[1 if call.name.endswith("_backward") else 0]
    size = float(x.numel * (x.item_size_bytes or 4))
    last = Kernel(1.0, 0.0, trips=REDUCTION_TRIPS) if reduced else None
    return in_turn(size, work, machine, kernels, reduced=last)


def nll_loss(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """One log-probability for each target, forward and backward.

    With a mean over rows it runs in one block; its gradient is zeroed by the whole device first.
    """
    x = call.tensors[0]
    if "backward" in call.name:
        rows = call.tensors[2].numel if len(call.tensors) > 2 else 1
        touched = min(1.0, rows / max(1, call.tensors[1].numel))
        return (Walk(reads=0.0), Walk(writes=touched, programs=1.0))
    if len(x.shape) > 2:
        return ONE
    # One block of 32 threads; the loads of about eight of a thread's rows are under way at once.
    rows = x.shape[0] if len(x.shape) == 2 else 1
    return (Walk(programs=1.0, trips=ceil(rows / (32 * 8))),)


def ctc_loss(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """Connectionist temporal classification, forward and backward.

    A block goes through the time steps one after the other: the states of each are read from those
    of the last, which its threads have just written (``ctc_loss_log_alpha_gpu_kernel``,
    ``ctc_loss_backward_log_beta_gpu_kernel`` in LossCTC.cu). The gradient is another kernel.
    """
    backward = "backward" in call.name
    log_probabilities = call.tensors[1 if backward else 0]
    steps, batch = log_probabilities.shape[0], log_probabilities.shape[1]
    if not backward:
        return (Walk(programs=float(batch), trips=steps),)
    return (Walk(0.5, 0.0, 0.5, programs=float(batch), trips=steps), Walk(arithmetic=0.5))
