"""The fused transformer layers that ``torch.nn`` calls in inference, and pieces of them."""

from __future__ import annotations

from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.formulas.attention import FORWARD_VECTOR
from gobrrr.work.registry import formula
from gobrrr.work.traffic import account, arithmetic_dtype, need
from gobrrr.work.weights import DIVIDE, FUNCTION

# Per element of the tokens: layer norm 7 (``normalisations``), a residual 1.
NORM_AND_RESIDUAL = 8


def _attention_flops(tokens: int, keys: int, width: int, batch: int) -> tuple[float, float]:
    """Matrix FLOPs of scores and values of all heads, and pairs of one head."""
    pairs = batch * (tokens // max(batch, 1)) * keys
    return 4.0 * pairs * width, float(pairs)


@formula("aten::_transformer_encoder_layer_fwd")
def encoder_layer(call: OpCall) -> Work:
    """``(src (b, t, e), embed_dim, heads, qkv_weight, ..., use_gelu, ..., mask, mask_type)``.

    Projections 2 n e (3 e + e), attention 4 b t^2 e, feed-forward 4 n e f. A nested ``src`` has no
    shape that tells its tokens: unknown.
    """
    src, heads = need(call, 0), call.args[2]
    if len(src.shape) != 3 or not isinstance(heads, int):
        raise ValueError("only a dense batch tells its tokens")
    batch, steps, width = src.shape
    tokens = batch * steps
    hidden = need(call, 14).shape[0]
    attention, pairs = _attention_flops(tokens, steps, width, batch)
    activation, special = (4 + FUNCTION, 1) if call.args[7] is True else (1, 0)
    parameters = call.tensors[1:]
    out = call.outputs or (TensorSpec(src.shape, src.dtype),)
    return account(
        [src, *parameters],
        out,
        matrix=8.0 * tokens * width * width + attention + 4.0 * tokens * width * hidden,
        vector=2.0 * NORM_AND_RESIDUAL * tokens * width
        + activation * tokens * hidden
        + heads * pairs * FORWARD_VECTOR,
        special=float(special * tokens * hidden + heads * pairs),
        dtype=src.dtype,
        op_class="contraction",
    )


@formula("aten::_native_multi_head_attention")
def multi_head_attention(call: OpCall) -> Work:
    """``(q (b, t, e), k, v, embed_dim, heads, qkv_weight (3 e, e), ..., mask, ...)``."""
    q, k = need(call, 0), need(call, 1)
    heads = call.args[4]
    if len(q.shape) != 3 or not isinstance(heads, int):
        raise ValueError("only a dense batch tells its tokens")
    batch, steps, width = q.shape
    keys = k.shape[1]
    tokens, key_tokens = batch * steps, batch * keys
    attention, pairs = _attention_flops(tokens, keys, width, batch)
    out = call.outputs or (TensorSpec(q.shape, q.dtype),)
    # Self-attention passes one tensor three times: without storages known it would count thrice.
    inputs = [q] if call.args[0] == call.args[1] == call.args[2] else [q, k, need(call, 2)]
    return account(
        [*inputs, *call.tensors[3:]],
        [spec for spec in out if spec.numel],
        matrix=2.0 * width * width * (2 * tokens + 2 * key_tokens) + attention,
        vector=heads * pairs * FORWARD_VECTOR,
        special=heads * pairs,
        dtype=q.dtype,
        op_class="contraction",
    )


@formula("aten::_transform_bias_rescale_qkv")
def rescale_qkv(call: OpCall) -> Work:
    """``(qkv (b, t, 3 e), bias (3 e,), heads)`` -> q scaled, k, v: a sum each, a product for q."""
    qkv, bias = need(call, 0), need(call, 1)
    third = TensorSpec((qkv.numel // 3,), qkv.dtype)
    return account(
        [qkv, bias], call.outputs or (third, third, third), vector=qkv.numel * 4 / 3,
        dtype=arithmetic_dtype(qkv.dtype), op_class="elementwise",
    )  # fmt: skip


@formula("aten::_masked_softmax")
def masked_softmax(call: OpCall) -> Work:
    """``(self, mask, dim, mask_type)``: a softmax that reads a mask."""
    x, mask = need(call, 0), need(call, 1)
    rows = x.numel // max(x.shape[-1] if x.shape else 1, 1)
    out = call.outputs or (TensorSpec(x.shape, x.dtype),)
    return account(
        [x, mask], out, vector=float((4 + FUNCTION) * x.numel + DIVIDE * rows),
        special=float(x.numel), dtype=arithmetic_dtype(x.dtype), op_class="normalisation",
    )  # fmt: skip


@formula("aten::_masked_softmax_backward")
def masked_softmax_backward(call: OpCall) -> Work:
    """``(grad, output, mask, dim)``: 4 per element."""
    grad, y, mask = need(call, 0), need(call, 1), need(call, 2)
    out = call.outputs or (TensorSpec(y.shape, y.dtype),)
    return account(
        [grad, y, mask], out, vector=4.0 * y.numel, dtype=arithmetic_dtype(y.dtype),
        op_class="normalisation",
    )  # fmt: skip
