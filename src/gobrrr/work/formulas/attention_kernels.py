"""Attention operators below the dispatcher, with heads after positions, and packed sequences.

Tensors are ``(batch, positions, heads, d)``. With cumulative lengths they are packed, ``(tokens,
heads, d)`` for flash and a batch of one for the memory-efficient kernel. The lengths' values are
not recorded: of all lengths with these sums, equal ones have the fewest pairs (for self-attention
the sum of squares is least), so that is the least work.
"""

from __future__ import annotations

from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.formulas.attention import (
    BACKWARD_SPECIAL,
    BACKWARD_VECTOR,
    BOTTOM_RIGHT,
    FORWARD_SPECIAL,
    FORWARD_VECTOR,
    UNMASKED,
    backward_work,
    causal_mask,
    forward_work,
    packed_sequences,
    sequences_of,
    visible_pairs,
)
from gobrrr.work.registry import formula
from gobrrr.work.traffic import account, arithmetic_dtype, need, tensor_at
from gobrrr.work.weights import DIVIDE


def pairs_of(
    q: TensorSpec, k: TensorSpec, sequences: int | None, mask: int
) -> tuple[float, int, int]:
    """Pairs of all heads and sequences, heads, and query positions of all sequences."""
    heads = q.shape[-2]
    if sequences is None:
        batch, s, t = q.shape[0], q.shape[1], k.shape[1]
        return batch * heads * visible_pairs(s, t, mask), heads, batch * s
    queries, keys = q.numel // (heads * q.shape[-1]), k.numel // (k.shape[-2] * k.shape[-1])
    s_mean, t_mean = queries / sequences, keys / sequences
    pairs = s_mean * t_mean
    if mask:
        # Equal lengths: the triangle of one sequence; of unequal ones, the lower bound alone.
        pairs = s_mean * (s_mean + 1) / 2 if s_mean == t_mean else s_mean * t_mean / 2
    return heads * sequences * pairs, heads, queries


def _forward(
    call: OpCall,
    sequences: int | None,
    mask: int,
    bias: TensorSpec | None,
    first: int = 0,
) -> Work:
    q, k, v = need(call, first), need(call, first + 1), need(call, first + 2)
    pairs, heads, queries = pairs_of(q, k, sequences, mask)
    d, dv = q.shape[-1], v.shape[-1]
    out = [TensorSpec((*q.shape[:-1], dv), q.dtype)]
    statistics = TensorSpec((heads * queries,), arithmetic_dtype(q.dtype))
    reads = [q, k, v, *((bias,) if bias is not None else ())]
    return account(
        reads,
        [*out, statistics],
        matrix=2.0 * pairs * (d + dv),
        vector=pairs * (FORWARD_VECTOR + (bias is not None)) + heads * queries * (dv + DIVIDE),
        special=pairs * FORWARD_SPECIAL,
        dtype=q.dtype,
        op_class="contraction",
        fresh=first == 0,
    )


def _backward(
    call: OpCall, at: tuple[int, ...], sequences: int | None, mask: int, bias: TensorSpec | None
) -> Work:
    """``at``: positions of grad, q, k, v, out, logsumexp."""
    grad, q, k, v, out, statistics = (need(call, i) for i in at)
    pairs, heads, queries = pairs_of(q, k, sequences, mask)
    d, dv = q.shape[-1], v.shape[-1]
    reads = [grad, q, k, v, out, statistics, *((bias,) if bias is not None else ())]
    return account(
        reads,
        [TensorSpec(spec.shape, spec.dtype) for spec in (q, k, v)],
        matrix=2.0 * pairs * (3 * d + 2 * dv),
        vector=pairs * (BACKWARD_VECTOR + (bias is not None)) + 2 * heads * queries * dv,
        special=pairs * BACKWARD_SPECIAL,
        dtype=q.dtype,
        op_class="contraction",
    )


@formula("aten::_flash_attention_forward")
def flash(call: OpCall) -> Work:
    """``(q, k, v, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, ...)``."""
    return _forward(call, packed_sequences(call), causal_mask(call), None)


@formula("aten::_flash_attention_forward_no_dropout_inplace")
def flash_inplace(call: OpCall) -> Work:
    """The same after ``out``."""
    return _forward(call, packed_sequences(call), causal_mask(call), None, first=1)


@formula("aten::_flash_attention_backward")
def flash_backward(call: OpCall) -> Work:
    """``(grad, q, k, v, out, logsumexp, cum_q, cum_k, max_q, max_k, p, is_causal, ...)``."""
    return _backward(call, (0, 1, 2, 3, 4, 5), packed_sequences(call), causal_mask(call), None)


@formula("aten::_efficient_attention_forward")
def efficient(call: OpCall) -> Work:
    """``(q, k, v, bias, cu_seqlens_q, cu_seqlens_k, max_q, max_k, p, custom_mask_type, ...)``."""
    return _forward(call, packed_sequences(call), causal_mask(call), tensor_at(call, 3))


@formula("aten::_efficient_attention_backward")
def efficient_backward(call: OpCall) -> Work:
    """``(grad, q, k, v, bias, out, cu_q, cu_k, max_q, max_k, logsumexp, p, .., mask at 14)``."""
    return _backward(
        call, (0, 1, 2, 3, 5, 10), packed_sequences(call), causal_mask(call),
        tensor_at(call, 4),
    )  # fmt: skip


@formula("aten::_cudnn_attention_forward")
def cudnn_forward(call: OpCall) -> Work:
    """``(q, k, v, bias, cum_q, cum_k, max_q, max_k, compute_lse, p, is_causal, ...)``, dense."""
    if tensor_at(call, 4) is not None:
        raise ValueError("packed sequences of this operator are not described")
    return forward_work(
        call, need(call, 0), need(call, 1), need(call, 2), causal=causal_mask(call),
        mask=tensor_at(call, 3), statistics=1 if call.args[8] is True else 0,
    )  # fmt: skip


@formula("aten::_cudnn_attention_backward")
def cudnn_backward(call: OpCall) -> Work:
    """``(grad, q, k, v, out, lse, seed, offset, bias, cum_q, cum_k, max_q, max_k, p, causal)``."""
    if tensor_at(call, 9) is not None:
        raise ValueError("packed sequences of this operator are not described")
    return backward_work(
        need(call, 0), need(call, 1), need(call, 2), need(call, 3), need(call, 4),
        tensor_at(call, 5), causal=causal_mask(call), mask=tensor_at(call, 8),
    )  # fmt: skip


# The package flash-attn (flash_attn/flash_attn_interface.py of
# https://github.com/Dao-AILab/flash-attention, 2.7 and later) under its own namespace. Forks reuse
# the names for other arguments: what does not look like the original is unknown.


def _original(call: OpCall, causal_at: int) -> int:
    causal, left, right = call.args[causal_at : causal_at + 3]
    if not isinstance(causal, bool) or (left, right) not in ((-1, -1), (-1, 0)):
        raise ValueError("another signature, or a sliding window")
    return BOTTOM_RIGHT if causal or right == 0 else UNMASKED


@formula("flash_attn::_flash_attn_forward")
def package_forward(call: OpCall) -> Work:
    """``(q, k, v, dropout_p, softmax_scale, causal, window_left, window_right, ...)``."""
    return _forward(call, None, _original(call, 5), None)


@formula("flash_attn::_flash_attn_varlen_forward")
def package_varlen_forward(call: OpCall) -> Work:
    """``(q, k, v, cu_q, cu_k, max_q, max_k, dropout_p, softmax_scale, causal, windows, ...)``."""
    return _forward(call, sequences_of(need(call, 3)), _original(call, 9), None)


@formula("flash_attn::_flash_attn_backward")
def package_backward(call: OpCall) -> Work:
    """``(grad, q, k, v, out, lse, dq, dk, dv, dropout_p, softmax_scale, causal, windows, ...)``."""
    return _backward(call, (0, 1, 2, 3, 4, 5), None, _original(call, 11), None)


@formula("flash_attn::_flash_attn_varlen_backward")
def package_varlen_backward(call: OpCall) -> Work:
    """``(grad, q, k, v, out, lse, dq, dk, dv, cq, ck, max_q, max_k, p, scale, ...)``."""
    sequences = sequences_of(need(call, 9))
    return _backward(call, (0, 1, 2, 3, 4, 5), sequences, _original(call, 15), None)
