"""Calls of one layer of a transformer, costed by the model of kernels.

Shapes are those of one rank. ``seconds_of`` adds up the kernels' expected times on a device; the
host's part is the programs' (``mpt``, ``megatron``).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import count

from gobrrr.prediction.kernels.kernel_model import estimate_op
from gobrrr.prediction.kernels.target import TargetDevice, target_device
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work import work_of
from gobrrr.work.fused import work_of_fused

_STORAGES = count(1)


def tensor(*shape: int, dtype: str = "bfloat16") -> TensorSpec:
    """A contiguous tensor in a storage of its own."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return TensorSpec(shape, dtype, tuple(reversed(strides)), next(_STORAGES), "cuda", 0)


def turned(rows: int, columns: int, dtype: str) -> TensorSpec:
    """The transpose of a contiguous (columns, rows) matrix, as weights are passed."""
    return TensorSpec((rows, columns), dtype, (1, rows), next(_STORAGES), "cuda", 0)


def linear(tokens: int, inputs: int, outputs: int, dtype: str, *, bias: bool = True) -> OpCall:
    """A linear layer's product, with its bias in the epilogue."""
    x, w = tensor(tokens, inputs, dtype=dtype), turned(inputs, outputs, dtype)
    y = tensor(tokens, outputs, dtype=dtype)
    if not bias:
        return OpCall("aten::mm", (x, w), (y,), "default")
    return OpCall("aten::addmm", (tensor(outputs, dtype=dtype), x, w, 1, 1), (y,), "default")


def linear_backward(
    tokens: int, inputs: int, outputs: int, dtype: str, *, bias: bool = True
) -> list[OpCall]:
    """Gradients of a linear layer's input, weight and bias."""
    grad = tensor(tokens, outputs, dtype=dtype)
    found = [
        OpCall(
            "aten::mm", (grad, tensor(outputs, inputs, dtype=dtype)),
            (tensor(tokens, inputs, dtype=dtype),), "default",
        ),
        OpCall(
            "aten::mm", (turned(outputs, tokens, dtype), tensor(tokens, inputs, dtype=dtype)),
            (tensor(outputs, inputs, dtype=dtype),), "default",
        ),
    ]  # fmt: skip
    if bias:
        found.append(reduced_rows(tokens, outputs, dtype))
    return found


def layer_norm(tokens: int, width: int, dtype: str) -> OpCall:
    """A layer norm's forward."""
    x = tensor(tokens, width, dtype=dtype)
    w, b = tensor(width, dtype=dtype), tensor(width, dtype=dtype)
    stats = (tensor(tokens, 1, dtype="float32"), tensor(tokens, 1, dtype="float32"))
    out = tensor(tokens, width, dtype=dtype)
    return OpCall("aten::native_layer_norm", (x, (width,), w, b, 1e-5), (out, *stats), "default")


def layer_norm_backward(tokens: int, width: int, dtype: str) -> OpCall:
    """A layer norm's backward: gradients of input, weight and bias."""
    grad, x = tensor(tokens, width, dtype=dtype), tensor(tokens, width, dtype=dtype)
    mean, rstd = tensor(tokens, 1, dtype="float32"), tensor(tokens, 1, dtype="float32")
    w, b = tensor(width, dtype=dtype), tensor(width, dtype=dtype)
    outputs = (tensor(tokens, width, dtype=dtype), tensor(width, dtype=dtype),
               tensor(width, dtype=dtype))  # fmt: skip
    args = (grad, x, (width,), mean, rstd, w, b, (True, True, True))
    return OpCall("aten::native_layer_norm_backward", args, outputs, "default")


def flash(batch: int, heads: int, length: int, width: int, dtype: str) -> OpCall:
    """Causal FlashAttention-2, forward."""
    q, k, v, out = (tensor(batch, heads, length, width, dtype=dtype) for _ in range(4))
    stats = tensor(batch, heads, length, dtype="float32")
    return OpCall(
        "aten::_scaled_dot_product_flash_attention", (q, k, v, 0.0, True, False, None),
        (out, stats), "default",
    )  # fmt: skip


def flash_backward(batch: int, heads: int, length: int, width: int, dtype: str) -> OpCall:
    """The same, backward."""
    grad, q, k, v, out = (tensor(batch, heads, length, width, dtype=dtype) for _ in range(5))
    stats = tensor(batch, heads, length, dtype="float32")
    outputs = tuple(tensor(batch, heads, length, width, dtype=dtype) for _ in range(3))
    args = (grad, q, k, v, out, stats, None, None, length, length, 0.0, True, None, None)
    return OpCall("aten::_scaled_dot_product_flash_attention_backward", args, outputs, "default")


def rows_gathered(rows: int, width: int, dtype: str) -> OpCall:
    """``torch.gather`` of all rows by an index that is expanded along them."""
    index = TensorSpec((rows, width), "int64", (1, 0), next(_STORAGES), "cuda", 0)
    x, out = tensor(rows, width, dtype=dtype), tensor(rows, width, dtype=dtype)
    return OpCall("aten::gather", (x, 0, index), (out,), "default")


def rows_scattered(rows: int, width: int, dtype: str) -> list[OpCall]:
    """The way back: zeros, and ``scatter_`` into them by the same index."""
    index = TensorSpec((rows, width), "int64", (1, 0), next(_STORAGES), "cuda", 0)
    out, source = tensor(rows, width, dtype=dtype), tensor(rows, width, dtype=dtype)
    return [
        OpCall("aten::zero_", (out,), (out,), "default"),
        OpCall("aten::scatter_", (out, 0, index, source), (out,), "src"),
    ]


def rows_indexed(rows: int, width: int, dtype: str) -> OpCall:
    """``x[indices]`` along the first dimension."""
    x, out = tensor(rows, width, dtype=dtype), tensor(rows, width, dtype=dtype)
    return OpCall("aten::index", (x, (tensor(rows, dtype="int64"),)), (out,), "Tensor")


def rows_put(rows: int, width: int, dtype: str) -> list[OpCall]:
    """``zeros`` and ``x[indices] = values``."""
    out, values = tensor(rows, width, dtype=dtype), tensor(rows, width, dtype=dtype)
    index = (tensor(rows, dtype="int64"),)
    return [
        OpCall("aten::zero_", (out,), (out,), "default"),
        OpCall("aten::index_put_", (out, index, values, False), (out,), "default"),
    ]


def reduced_rows(rows: int, width: int, dtype: str) -> OpCall:
    """The sum over the first dimension."""
    args = (tensor(rows, width, dtype=dtype), (0,), True)
    return OpCall("aten::sum", args, (tensor(1, width, dtype=dtype),), "dim_IntList")


def copied(rows: int, width: int, dtype: str) -> OpCall:
    """A tensor written anew in another order."""
    return fused("add", 1, (rows, width), dtype)


def joined(parts: int, rows: int, width: int, dtype: str) -> OpCall:
    """``torch.cat`` of tensors along their last dimension."""
    each = tuple(tensor(rows, width, dtype=dtype) for _ in range(parts))
    return OpCall("aten::cat", (each, 1), (tensor(rows, parts * width, dtype=dtype),), "default")


def batched(batch: int, m: int, k: int, n: int, dtype: str) -> OpCall:
    """A batch of products."""
    a, b = tensor(batch, m, k, dtype=dtype), tensor(batch, k, n, dtype=dtype)
    return OpCall("aten::bmm", (a, b), (tensor(batch, m, n, dtype=dtype),), "default")


def fused(ops: str, inputs: int, shape: tuple[int, ...], dtype: str) -> OpCall:
    """One kernel of element-wise work: ``inputs`` tensors read, one written."""
    args = tuple(tensor(*shape, dtype=dtype) for _ in range(inputs + 1))
    return OpCall(f"triton_poi_fused_{ops}_0", args, (args[-1],), "")


def rowwise(ops: str, inputs: int, rows: int, width: int, dtype: str) -> OpCall:
    """One kernel that walks along rows: ``inputs`` tensors read, one written."""
    args = tuple(tensor(rows, width, dtype=dtype) for _ in range(inputs + 1))
    return OpCall(f"triton_per_fused_{ops}_0", args, (args[-1],), "")


def elementwise(name: str, inputs: int, elements: int, dtype: str) -> OpCall:
    """An eager element-wise operator over a flat tensor; a number as what else it takes."""
    args = tuple(tensor(elements, dtype=dtype) for _ in range(inputs))
    overload = "Tensor"
    return OpCall(f"aten::{name}", (*args, 2.0) if inputs == 1 else args, (args[0],), overload)


@cache
def device_of(key: str) -> TargetDevice:
    """The device of a data sheet."""
    return target_device(key)


def seconds_of(calls: Iterable[OpCall], device: TargetDevice) -> float:
    """Expected time of the calls' kernels, one after the other.

    Raises ValueError for a call that the model does not know.
    """
    total = 0.0
    for call in calls:
        work = work_of(call) or work_of_fused(call.name, call.tensors)
        found = None if work is None else estimate_op(call, work, device)
        if found is None:
            raise ValueError(f"no model of {call.name}")
        total += found.time_s
    return total
