"""Scaled dot-product attention, every backend: fused, so scores never travel through memory.

Forward, per head: scores ``q k^T`` and ``p v``, 2 (d + dv) FLOPs for each pair of a query and a
key it may see. Backward: five products, scores again, ``dv = p^T do``, ``dp = do v^T``,
``dq = ds k``, ``dk = ds^T q``: 2 (3 d + 2 dv) (Dao, "FlashAttention-2", 2023, section 2.3).
``torch.utils.flop_counter`` counts the same, except that it ignores ``is_causal``; here a causal
mask leaves only the pairs on or below the diagonal, since a kernel need not compute the others.
"""

from __future__ import annotations

from dataclasses import replace

from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.registry import formula
from gobrrr.work.traffic import account, arithmetic_dtype, need, product, tensor_at
from gobrrr.work.weights import DIVIDE, FUNCTION

# Per pair: scale, running maximum, subtraction, exp, sum. Backward: scale, subtraction, exp for
# the probabilities, then (dp - delta) * p and the scale again.
FORWARD_VECTOR, FORWARD_SPECIAL = 4 + FUNCTION, 1
BACKWARD_VECTOR, BACKWARD_SPECIAL = 5 + FUNCTION, 1

# Which pairs a causal mask leaves: those on or below the diagonal from the first query and key, or
# from the last. Numbers as in ``custom_mask_type`` of the memory-efficient kernel.
UNMASKED, TOP_LEFT, BOTTOM_RIGHT = 0, 1, 2
# Where operators have ``is_causal``, and two of them ``custom_mask_type``.
_CAUSAL_AT = {
    "aten::scaled_dot_product_attention": 5,
    "aten::_scaled_dot_product_attention_math": 5,
    "aten::_scaled_dot_product_attention_math_for_mps": 5,
    "aten::_scaled_dot_product_flash_attention": 4,
    "aten::_scaled_dot_product_flash_attention_backward": 11,
    "aten::_scaled_dot_product_flash_attention_for_cpu": 4,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": 7,
    "aten::_scaled_dot_product_efficient_attention": 6,
    "aten::_scaled_dot_product_efficient_attention_backward": 11,
    "aten::_scaled_dot_product_cudnn_attention": 6,
    "aten::_scaled_dot_product_cudnn_attention_backward": 14,
    "aten::_scaled_dot_product_fused_attention_overrideable": 5,
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": 13,
    "aten::_flash_attention_forward": 8,
    "aten::_flash_attention_forward_no_dropout_inplace": 9,
    "aten::_flash_attention_backward": 11,
    "aten::_efficient_attention_forward": 9,
    "aten::_efficient_attention_backward": 14,
    "aten::_cudnn_attention_forward": 10,
    "aten::_cudnn_attention_backward": 14,
}
# Where they have ``cum_seq_q`` or ``cu_seqlens_q``, given where sequences are packed.
_LENGTHS_AT = {
    "aten::_flash_attention_forward": 3,
    "aten::_flash_attention_forward_no_dropout_inplace": 4,
    "aten::_flash_attention_backward": 6,
    "aten::_efficient_attention_forward": 4,
    "aten::_efficient_attention_backward": 6,
}


def causal_mask(call: OpCall) -> int:
    """Of an operator of PyTorch: ``UNMASKED``, ``TOP_LEFT`` or ``BOTTOM_RIGHT``.

    Raises:
        ValueError: ``custom_mask_type`` was not recorded.
    """
    index = _CAUSAL_AT.get(call.name)
    if index is None:
        return UNMASKED
    arg = call.args[index] if len(call.args) > index else None
    if call.name.startswith("aten::_efficient_"):
        if not isinstance(arg, int):
            raise ValueError("custom_mask_type was not recorded")
        return int(arg)
    if arg is not True:
        return UNMASKED
    # FlashAttention-2 on GPUs aligns the last query and key; ``scaled_dot_product_attention`` gives
    # it none where that differs, ``torch.nn.attention.bias.causal_lower_right`` does.
    on_gpu = "_flash_attention" in call.name and "_for_cpu" not in call.name
    return BOTTOM_RIGHT if on_gpu else TOP_LEFT


def packed_sequences(call: OpCall) -> int | None:
    """Of an operator of PyTorch whose tensors are packed: of how many sequences, else ``None``."""
    index = _LENGTHS_AT.get(call.name)
    cumulative = None if index is None else tensor_at(call, index)
    return None if cumulative is None else sequences_of(cumulative)


def sequences_of(cumulative: TensorSpec) -> int:
    """How many sequences these cumulative lengths, which begin with 0, are of; at least one."""
    return max(cumulative.numel - 1, 1)


def visible_pairs(queries: int, keys: int, mask: int) -> int:
    """Pairs of a query and a key it sees, one head; ``mask`` as of ``causal_mask``.

    ``TOP_LEFT``, which is ``is_causal`` of PyTorch's attention: query i sees keys 0 to i.
    ``BOTTOM_RIGHT``: the last query sees all keys.
    """
    if mask == UNMASKED:
        return queries * keys
    if mask == BOTTOM_RIGHT:
        # Query i sees keys - queries + i + 1 of them.
        if keys >= queries:
            return queries * keys - queries * (queries - 1) // 2
        return keys * (keys + 1) // 2
    square = min(queries, keys)
    # 1 + 2 + ... + square, and whole rows for queries beyond the last key.
    return square * (square + 1) // 2 + (queries - square) * keys


def _true(args: tuple[Arg, ...], index: int) -> bool:
    return len(args) > index and args[index] is True


def forward_work(
    call: OpCall,
    q: TensorSpec,
    k: TensorSpec,
    v: TensorSpec,
    *,
    causal: int,
    mask: TensorSpec | None = None,
    statistics: int = 1,
) -> Work:
    """``q (..., h, s, d)``, ``k (..., hk, t, d)``, ``v (..., hk, t, dv)`` -> ``(..., h, s, dv)``.

    ``causal``: as of ``causal_mask``; ``statistics``: float32 numbers kept per query for the
    backward (the log-sum-exp).
    """
    heads, s, d = product(q.shape[:-2]), q.shape[-2], q.shape[-1]
    t, dv = k.shape[-2], v.shape[-1]
    pairs = heads * visible_pairs(s, t, causal)
    out = [TensorSpec((*q.shape[:-1], dv), q.dtype)]
    if statistics:
        out.append(TensorSpec((*q.shape[:-1],), arithmetic_dtype(q.dtype)))
    if call.outputs:
        # Of the other outputs, seeds, lengths and an unused mask are not the kernel's traffic.
        out = [spec for spec in call.outputs if len(spec.shape) > 1 and spec.numel]
    reads = [q, k, v, *((mask,) if mask is not None else ())]
    masked = 1 if mask is not None else 0
    return account(
        reads,
        out,
        matrix=2.0 * pairs * (d + dv),
        vector=float(pairs * (FORWARD_VECTOR + masked) + heads * s * (dv + DIVIDE)),
        special=float(pairs * FORWARD_SPECIAL),
        dtype=q.dtype,
        op_class="contraction",
    )


def backward_work(
    grad: TensorSpec,
    q: TensorSpec,
    k: TensorSpec,
    v: TensorSpec,
    out: TensorSpec,
    statistics: TensorSpec | None,
    *,
    causal: int,
    mask: TensorSpec | None = None,
    writes: tuple[TensorSpec, ...] | None = None,
) -> Work:
    """Gradients of q, k and v; scores are computed again from q and k. Arguments as above."""
    heads, s, d = product(q.shape[:-2]), q.shape[-2], q.shape[-1]
    t, dv = k.shape[-2], v.shape[-1]
    pairs = heads * visible_pairs(s, t, causal)
    reads = [spec for spec in (grad, q, k, v, out, statistics, mask) if spec is not None]
    gradients = writes or tuple(TensorSpec(spec.shape, spec.dtype) for spec in (q, k, v))
    return account(
        reads,
        gradients,
        matrix=2.0 * pairs * (3 * d + 2 * dv),
        # And delta = sum(do * o) for each query.
        vector=float(pairs * (BACKWARD_VECTOR + (mask is not None)) + 2 * heads * s * dv),
        special=float(pairs * BACKWARD_SPECIAL),
        dtype=q.dtype,
        op_class="contraction",
    )


def _written(call: OpCall) -> tuple[TensorSpec, ...] | None:
    return tuple(spec for spec in call.outputs if spec.numel) if call.outputs else None


@formula(
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
)
def flash(call: OpCall) -> Work:
    """``(q, k, v, dropout_p, is_causal, ...)``, with ``attn_mask`` next on CPUs."""
    return forward_work(
        call, need(call, 0), need(call, 1), need(call, 2), causal=causal_mask(call),
        mask=tensor_at(call, 5),
    )  # fmt: skip


@formula(
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_fused_attention_overrideable",
)
def with_bias(call: OpCall) -> Work:
    """``(q, k, v, attn_bias, compute_log_sumexp, dropout_p, is_causal, ...)``.

    The overrideable one has no ``compute_log_sumexp``: ``is_causal`` comes one earlier.
    """
    override = call.name.endswith("overrideable")
    return forward_work(
        call, need(call, 0), need(call, 1), need(call, 2),
        causal=causal_mask(call), mask=tensor_at(call, 3),
        statistics=1 if override or _true(call.args, 4) else 0,
    )  # fmt: skip


@formula(
    "aten::scaled_dot_product_attention",
    "aten::_scaled_dot_product_attention_math",
    "aten::_scaled_dot_product_attention_math_for_mps",
    composite=True,
)
def composite(call: OpCall) -> Work:
    """``(q, k, v, attn_mask, dropout_p, is_causal, ...)``."""
    return forward_work(
        call, need(call, 0), need(call, 1), need(call, 2), causal=causal_mask(call),
        mask=tensor_at(call, 3), statistics=0,
    )  # fmt: skip


# Operator -> positions of out, logsumexp and the mask (or bias), after grad, q, k and v.
_BACKWARD: dict[str, tuple[int, int, int | None]] = {
    "aten::_scaled_dot_product_flash_attention_backward": (4, 5, None),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": (4, 5, 8),
    "aten::_scaled_dot_product_efficient_attention_backward": (5, 6, 4),
    "aten::_scaled_dot_product_cudnn_attention_backward": (4, 5, 8),
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": (6, 7, 4),
}


@formula(*_BACKWARD)
def backward(call: OpCall) -> Work:
    """``(grad, q, k, v, ...)``, the others where ``_BACKWARD`` says."""
    out, statistics, mask = _BACKWARD[call.name]
    return backward_work(
        need(call, 0), need(call, 1), need(call, 2), need(call, 3), need(call, out),
        tensor_at(call, statistics), causal=causal_mask(call),
        mask=None if mask is None else tensor_at(call, mask), writes=_written(call),
    )  # fmt: skip


@formula("flex::attention")
def flex(call: OpCall) -> Work:
    """``(q, k, v, share)``: ``share`` of all pairs of a query and a key are computed."""
    whole = forward_work(call, need(call, 0), need(call, 1), need(call, 2), causal=False)
    return _pairs_left(whole, call.args[3])


@formula("flex::attention_backward")
def flex_backward(call: OpCall) -> Work:
    """``(grad, q, k, v, out, logsumexp, share)``."""
    whole = backward_work(
        need(call, 0), need(call, 1), need(call, 2), need(call, 3), need(call, 4), need(call, 5),
        causal=False, writes=_written(call),
    )  # fmt: skip
    return _pairs_left(whole, call.args[6])


def _pairs_left(whole: Work, share: Arg) -> Work:
    if not isinstance(share, float):
        raise ValueError("the share of pairs was not recorded")

    def part(flops: float | None) -> float | None:
        return None if flops is None else flops * share

    return replace(
        whole,
        matrix_flops=part(whole.matrix_flops),
        vector_flops=part(whole.vector_flops),
        special=whole.special * share,
    )
