"""Products whose weights are packed integers (``torch.ao.quantization``)."""

from __future__ import annotations

from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.formulas.contractions import matrix_work
from gobrrr.work.registry import formula
from gobrrr.work.traffic import account, need
from gobrrr.work.traits import Role


@formula("quantized::linear_dynamic", "quantized::linear_relu_dynamic", fusion=Role.CONTRACTION)
def linear_dynamic(call: OpCall) -> Work | None:
    """``(x (..., k), packed, ...)`` -> ``(..., n)``: x is read for its range and as int8.

    The packed weights are no tensor: ``k * n`` of int8, a scale and a sum for each of n.
    """
    x = need(call, 0)
    if not call.outputs:
        return None
    out = call.outputs[0]
    k, n = x.shape[-1], out.shape[-1]
    weights = [TensorSpec((k, n), "int8"), TensorSpec((2, n), "float32")]
    # Range, scale and round of x, and the scale and bias of the result.
    return account(
        [x, *weights], [out], matrix=2.0 * k * out.numel, vector=4.0 * x.numel + 2.0 * out.numel,
        dtype="int8", op_class="contraction",
    )  # fmt: skip


@formula("aten::_weight_int8pack_mm", "aten::_weight_int4pack_mm")
def weight_only_mm(call: OpCall) -> Work:
    """Activations ``(m, k)`` by packed integer weights, dequantised on the way in."""
    x, weight = need(call, 0), need(call, 1)
    m, k = x.shape
    # int8: (n, k). int4 is tiled (n/8, ...); its elements hold 8 weights of 4 bits in an int32.
    n = weight.shape[0] * (1 if "int8" in call.name else 8)
    return matrix_work(call, call.tensors, m * n * k, (m, n), 99, dtype=x.dtype)
