"""Activations and element-wise operators with several results, or of half the input's size."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.registry import formula, qualified
from gobrrr.work.traffic import account, arithmetic_dtype, broadcast, need, results
from gobrrr.work.traits import Role, describe
from gobrrr.work.weights import DIVIDE, FUNCTION, SQUARE_ROOT


def _map(
    reads: Sequence[TensorSpec],
    writes: Sequence[TensorSpec],
    elements: int,
    flops: float,
    special: int = 0,
    *,
    fresh: bool = True,
) -> Work:
    return account(
        reads, writes, vector=float(flops * elements), special=float(special * elements),
        dtype=arithmetic_dtype(reads[0].dtype), op_class="elementwise", fresh=fresh,
    )  # fmt: skip


@formula("aten::glu")
def glu(call: OpCall) -> Work:
    """``(self, dim)``: one half times the sigmoid of the other."""
    x = need(call, 0)
    dim = call.args[1] if len(call.args) > 1 and isinstance(call.args[1], int) else -1
    shape = list(x.shape)
    shape[dim] //= 2
    out, fresh = results(call, 2, shape, x.dtype)
    return _map([x], out, x.numel // 2, 3 + FUNCTION + DIVIDE, 1, fresh=fresh)


@formula("aten::glu_backward")
def glu_backward(call: OpCall) -> Work:
    """``(grad, self, dim)``: both halves' gradients from one sigmoid."""
    grad, x = need(call, 0), need(call, 1)
    out, fresh = results(call, 3, x.shape, x.dtype)
    return _map([grad, x], out, grad.numel, 7 + FUNCTION + DIVIDE, 1, fresh=fresh)


@formula("aten::log_sigmoid_forward")
def log_sigmoid(call: OpCall) -> Work:
    """Result and a buffer: ``min(x, 0) - log1p(exp(-abs(x)))``.

    Beside the processor's kernels nobody writes the buffer (``log_sigmoid_forward_cuda``), though a
    tensor without data may get one of full size.
    """
    x = need(call, 0)
    out = [spec for spec in call.outputs or (TensorSpec(x.shape, x.dtype),) if spec.numel]
    if x.device and not x.device.startswith("cpu"):
        out = out[:1]
    return _map([x], out, x.numel, 4 + 2 * FUNCTION, 2)


@formula("aten::log_sigmoid_backward", fusion=Role.POINTWISE)
def log_sigmoid_backward(call: OpCall) -> Work:
    """``(grad, self, buffer)``: an exponential, a division; the buffer as in the forward pass."""
    grad, x, buffer = need(call, 0), need(call, 1), need(call, 2)
    reads = [grad, x] if x.device and not x.device.startswith("cpu") else [grad, x, buffer]
    out, fresh = results(call, 3, x.shape, x.dtype)
    return _map(reads, out, x.numel, 5 + FUNCTION + DIVIDE, 1, fresh=fresh)


@formula("aten::_prelu_kernel_backward")
def prelu_backward(call: OpCall) -> Work:
    """``(grad, self, weight)`` -> gradients of both, the weight's not yet reduced."""
    grad, x, weight = need(call, 0), need(call, 1), need(call, 2)
    out = call.outputs or (TensorSpec(x.shape, x.dtype), TensorSpec(x.shape, x.dtype))
    return _map([grad, x, weight], out, x.numel, 3)


@formula(*qualified("rrelu_with_noise rrelu_with_noise_ rrelu_with_noise_functional"))
def rrelu(call: OpCall) -> Work:
    """``(self, noise, ...)``: the noise is written in training."""
    x, noise = need(call, 0), need(call, 1)
    out, fresh = results(call, 6, x.shape, x.dtype)
    training = len(call.args) > 4 and call.args[4] is True
    return _map([x], [*out[:1], *((noise,) if training else ())], x.numel, 4, fresh=fresh)


@formula("aten::complex", "aten::polar")
def make_complex(call: OpCall) -> Work:
    """Two real tensors into a complex one; ``polar`` through a sine and a cosine."""
    a, b = need(call, 0), need(call, 1)
    dtype = "complex128" if a.dtype == "float64" else "complex64"
    out, fresh = results(call, 2, broadcast([a.shape, b.shape]), dtype)
    polar = call.name.endswith("polar")
    cost = 2 * FUNCTION + 2 if polar else 0
    return _map([a, b], out, out[0].numel, cost, 2 if polar else 0, fresh=fresh)


@formula("aten::_weight_norm_interface")
def weight_norm(call: OpCall) -> Work:
    """``(v, g, dim)`` -> weight, norms: square and sum, then a scaling."""
    v, g = need(call, 0), need(call, 1)
    out = call.outputs or (TensorSpec(v.shape, v.dtype), TensorSpec(g.shape, g.dtype))
    return account(
        [v, g], out, vector=float(3 * v.numel + (SQUARE_ROOT + DIVIDE) * g.numel),
        dtype=arithmetic_dtype(v.dtype), op_class="normalisation",
    )  # fmt: skip


@formula("aten::_weight_norm_interface_backward")
def weight_norm_backward(call: OpCall) -> Work:
    """``(grad, v, g, norms, dim)`` -> gradients of v and g."""
    grad, v, g, norms = (need(call, i) for i in range(4))
    out = call.outputs or (TensorSpec(v.shape, v.dtype), TensorSpec(g.shape, g.dtype))
    return account(
        [grad, v, g, norms], out, vector=float(5 * v.numel),
        dtype=arithmetic_dtype(v.dtype), op_class="normalisation",
    )  # fmt: skip


@formula(
    *qualified("quantize_per_tensor quantize_per_channel quantize_per_tensor_dynamic dequantize")
)
def quantize(call: OpCall) -> Work:
    """Scale, round, shift and clamp; back: shift and scale."""
    x = need(call, 0)
    back = call.name.endswith("dequantize")
    out = call.outputs or (TensorSpec(x.shape, "float32" if back else "qint8"),)
    return _map(call.tensors, out, x.numel, 2 if back else 5)


@formula(
    *qualified(
        "fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask "
        "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams"
    )
)
def fake_quantize(call: OpCall) -> Work:
    """Quantised and back, and the mask of what was not clamped."""
    x = need(call, 0)
    out = call.outputs or (TensorSpec(x.shape, x.dtype), TensorSpec(x.shape, "bool"))
    return _map(call.tensors, out, x.numel, 7)


describe(
    "glu glu_backward log_sigmoid_forward _prelu_kernel_backward polar complex",
    fusion=Role.POINTWISE,
)
