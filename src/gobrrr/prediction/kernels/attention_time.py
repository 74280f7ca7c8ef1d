"""Fused attention as its kernels do it: a block of queries against one block of keys after another.

Products and softmax of a block follow each other in the same threads, so their times add up
(Shah et al., "FlashAttention-3", 2024, section 3.2: FlashAttention-2 leaves the matrix unit idle
during the softmax). Blocks that hang over an edge cost as much as whole ones.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

from gobrrr.prediction.kernels.coefficients import Coefficients
from gobrrr.prediction.kernels.passes import cache_bytes_per_s, dram_bytes_per_s, reach
from gobrrr.prediction.kernels.products import TiledTime
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.timeline.ops import OpCall
from gobrrr.work.estimate import Work
from gobrrr.work.formulas.attention import (
    BACKWARD_VECTOR,
    FORWARD_VECTOR,
    UNMASKED,
    causal_mask,
    packed_sequences,
    visible_pairs,
)
from gobrrr.work.traffic import arithmetic_dtype

# Queries and keys of a block in FlashAttention-2 for heads of up to 64 and of up to 256.
_BLOCK = 128
# Rates of other kernels relative to FlashAttention-2, forward: the memory-efficient kernel of
# xFormers about 0.6 on an A100 (figures of the FlashAttention-2 paper), cuDNN about 1.6 on an H100
# with heads of 128 (figures of the FlashAttention-3 paper).
_EFFICIENT, _CUDNN = 0.6, 1.6
# The memory-efficient kernel multiplies float32 on the matrix unit of Ampere and later, as three
# products in TF32 (``OpMultiplyAddFastF32`` in its gemm_kernel_utils.h: inputs are split in two).
# Heads beyond 128 do not fit into its registers: for each block of keys it reads what it has of the
# result and writes it again, in float32 (``kKeepOutputInRF`` in its kernel_forward.h).
_PARTS, _IN_REGISTERS, _ACCUMULATOR_BYTES = 3, 128, 4
# The backward is three kernels: row sums, the gradients, and dq's conversion from float32. Beside
# the second, tensors of the queries' size in 16 bits go through memory: the result and its gradient
# for the sums, dq in float32 twice, to be cleared and to be converted, and once converted.
_BACKWARD_KERNELS, _BACKWARD_PASSES = 3, 7


def is_fused_attention(call: OpCall) -> bool:
    """Whether this op is one fused attention, forward or backward."""
    name = call.name.partition("::")[2]
    return "attention" in name and "mask" not in name


def multiplied_in_parts(call: OpCall, work: Work, device: TargetDevice) -> Work:
    """The work with float32 products as those in TF32 that the op's kernel makes of them."""
    if (
        "_efficient_attention" not in call.name
        or work.compute_dtype != "float32"
        or device.kind != "cuda"
        or device.ceilings.matrix_flops_per_s("tf32") is None
    ):
        return work
    flops = _PARTS * (work.matrix_flops or 0.0)
    return replace(work, compute_dtype="tf32", matrix_flops=flops)


def _share_of_pairs(call: OpCall) -> float:
    """Of flex attention: the share of all blocks that its mask leaves."""
    return next((arg for arg in call.args if isinstance(arg, float)), 1.0)


def _sizes(call: OpCall, backward: bool) -> tuple[int, int, int, int, int]:
    """Heads of all sequences, those of the keys, queries and keys of a sequence, size of a head.

    Sequences that are packed are taken as equally long: their lengths are not recorded.
    """
    name = call.name
    # Behind the gradient, or the result that is written in place.
    q, k = call.tensors[1:3] if backward or name.endswith("_inplace") else call.tensors[:2]
    d, packed = q.shape[-1], packed_sequences(call)
    if packed is not None:
        s, t = (ceil(spec.numel / (prod(spec.shape[-2:]) * packed)) for spec in (q, k))
        return q.shape[-2] * packed, k.shape[-2] * packed, s, t, d
    # flash_attention's own operators have heads behind positions, the public one before.
    rows_first = "_flash_attention_" in name or "_efficient_attention_" in name
    if rows_first and "scaled_dot_product" not in name and len(q.shape) == 4:
        batch, s, heads = q.shape[:3]
        return heads * batch, k.shape[2] * k.shape[0], s, k.shape[1], d
    return prod(q.shape[:-2]), prod(k.shape[:-2]), q.shape[-2], k.shape[-2], d


def time_of_attention(
    call: OpCall, work: Work, device: TargetDevice, c: Coefficients, cold_bytes: float
) -> TiledTime | None:
    """Expected time without the kernels' fixed cost; ``None`` without a ceiling.

    Raises:
        IndexError, ValueError: the trace leaves arguments out.
    """
    name = call.name
    backward = "backward" in name
    heads, shared, s, t, d = _sizes(call, backward)
    if not heads or not s:
        raise ValueError("an attention over nothing")
    mask = causal_mask(call) if s > 1 else UNMASKED
    causal = mask != UNMASKED
    seen = visible_pairs(s, t, mask) / s + (_BLOCK / 2 if causal else 0)
    if s == 1 and 0 < shared < heads and not backward:
        # One query each: those that share their keys become the rows of one block
        # (``seqlenq_ngroups_swapped`` in FlashAttention-2's flash_api.cpp).
        s, heads = heads // shared, shared
    if name.startswith("flex::attention"):
        seen *= _share_of_pairs(call)
    # Half a block of keys is the least that a causal kernel multiplies.
    key_blocks = min(seen, t) / _BLOCK
    key_blocks = max(0.5, key_blocks) if causal else max(1.0, ceil(key_blocks))
    tiles = heads * ceil(s / _BLOCK)
    units = device.multiprocessors
    parted = multiplied_in_parts(call, work, device)
    rate = device.ceilings.matrix_flops_per_s(parted.compute_dtype)
    if rate is not None and parted is not work:
        rate /= _PARTS
    dtype = arithmetic_dtype(work.compute_dtype)
    vector = device.ceilings.vector_flops_per_s(dtype)
    dram, cache = dram_bytes_per_s(device, c), cache_bytes_per_s(device, c)
    if rate is None or vector is None or dram is None or cache is None:
        return None
    if not units:
        return None
    pairs = _BLOCK * _BLOCK
    depth = ceil(d / 32) * 32
    products_s = (5 if backward else 2) * 2 * pairs * depth / (rate / units)
    softmax_s = pairs * (BACKWARD_VECTOR if backward else FORWARD_VECTOR) / (vector / units)
    exps = device.ceilings.value(f"vector.{dtype}.exp")
    if exps is not None:
        softmax_s = max(softmax_s, pairs / (exps / units))
    fraction = c.attention_backward_fraction if backward else c.attention_fraction
    if "efficient" in name:
        fraction *= _EFFICIENT
    elif "cudnn" in name:
        fraction *= _CUDNN
    spilled_s = 0.0
    if "efficient" in name and d > _IN_REGISTERS and not backward:
        spilled = 2 * _ACCUMULATOR_BYTES * heads * s * d * (min(seen, t) / _BLOCK)
        spilled_s = spilled / cache
    # Few queries and many keys: the keys are divided among multiprocessors (flash-decoding).
    split = min(ceil(key_blocks), max(1, units // tiles)) if s <= _BLOCK else 1
    rounds = ceil(tiles * split / units) * ceil(key_blocks / split)
    if tiles > units:
        # Multiprocessors that finish early take the next tile: only the last round is ragged.
        rounds = ceil(tiles / units * key_blocks + 0.5 * key_blocks)
        rounds = min(rounds, ceil(tiles / units) * ceil(key_blocks))
    # Each block of queries begins by loading itself and its first keys, and ends by writing.
    blocks = tiles * split / units
    turns = ceil(blocks) if blocks <= 1 else blocks + 0.5
    compute_s = (
        rounds * (products_s + softmax_s) / fraction + turns * c.attention_tile_s + spilled_s
    )
    memory_s = max(
        cold_bytes / (dram * reach(tiles * split, device, c)), (work.bytes_moved or 0) / cache
    )
    if backward:
        passed = float(_BACKWARD_PASSES * 2 * heads * s * d)
        compute_s += passed / (cache if passed < device.cache_bytes / 2 else dram)
    kernels = _BACKWARD_KERNELS if backward else 2 if split > 1 else 1
    seconds = max(compute_s, memory_s) + c.attention_fill_s
    return TiledTime(
        seconds, kernels, (_BLOCK, _BLOCK), split, ceil(tiles / units), compute_s, memory_s
    )
