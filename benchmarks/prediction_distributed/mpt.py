"""A training step of an MPT model under PyTorch's first FSDP, from its ops and its collectives.

What the source of the rows says is in their README; what it does not say is assumed here:

- parameters are gathered in bfloat16; gradients are reduced in float32 under ``amp_bf16`` and
  in bfloat16 under ``bf16`` (the source's *PURE* mixed precision);
- one unit per block and one for embedding and final norm; a gather runs ahead of the block that
  needs it, forward and backward; gathers and reductions of a device follow each other
  (FSDP 1 has one process group, and NCCL runs one collective of a group at a time);
- gradients are reduced after every microbatch; the parameters stay sharded in between;
- attention is FlashAttention 1.0.3, around which every token is taken out of a padded batch and put
  back, with q, k and v each gathered (``llmfoundry/models/layers/attention.py``, ``flash_attn_fn``,
  and ``flash_attn/bert_padding.py`` say so);
- the loss is a fused cross entropy over bfloat16 logits; the optimizer runs op by op in float32;
- hosts have eight network interfaces of 200 Gb/s, one for each GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from benchmarks.prediction_distributed.ops import (
    device_of,
    elementwise,
    flash,
    flash_backward,
    fused,
    joined,
    layer_norm,
    layer_norm_backward,
    linear,
    linear_backward,
    rows_gathered,
    rows_indexed,
    rows_put,
    rows_scattered,
    rowwise,
    seconds_of,
)
from benchmarks.prediction_distributed.rows import GPUS_A_HOST, FsdpRow

from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.prediction.mesh.collectives import Collective, Group, HostLink, collective_time

BF16, FP32 = "bfloat16", "float32"
NETWORK = HostLink(bytes_per_s=8 * 25e9, latency_s=0.0)
# Rate of FlashAttention's first version over the second's: "around 2x speedup" (Dao 2023,
# https://arxiv.org/abs/2307.08691).
FLASH_1 = 0.5
# Seconds of the program's kernels over those of the model: the median of the fitted models' rows on
# one host.
KERNEL_SHARE = 1.07
# Kernels that compute take so much longer while a collective runs beside them: its channels hold
# multiprocessors and it reads and writes the same memory. 18.9 % is the mean over training with
# FSDP and pipelines (Lee et al. 2025, https://arxiv.org/abs/2507.03114).
SLOWDOWN_BESIDE = 0.189


@dataclass(frozen=True, slots=True)
class BlockTime:
    """Seconds of one FSDP unit on one microbatch: what it computes, and its collectives."""

    forward_s: float
    backward_s: float
    gather_s: float
    reduce_s: float


@dataclass(frozen=True, slots=True)
class FsdpTime:
    """A predicted step: all of it, and what of it neither computes nor updates parameters."""

    seconds: float
    exposed_s: float
    optimizer_s: float


def step_time(row: FsdpRow) -> FsdpTime:
    """The step of a row, in seconds."""
    device = device_of(row.device)
    group = Group(row.gpus, row.gpus // GPUS_A_HOST)
    tokens = row.microbatch * row.seq_len
    shape = (row.width, row.heads, row.microbatch, row.seq_len, row.device)
    forward_s, backward_s = block_seconds(*shape)
    if row.checkpointing:
        backward_s += forward_s
    head_forward_s, head_backward_s = head_seconds(row.width, row.vocabulary, tokens, row.device)
    reduced = 4 if row.precision == "amp_bf16" else 2
    block_parameters = 12 * row.width**2 + 13 * row.width
    head_parameters = (row.vocabulary + row.seq_len + 2) * row.width
    block = BlockTime(
        forward_s, backward_s + flat_gradient_s(block_parameters, reduced, device),
        *collectives_s(block_parameters, reduced, group, device),
    )  # fmt: skip
    head = BlockTime(
        head_forward_s, head_backward_s + flat_gradient_s(head_parameters, reduced, device),
        *collectives_s(head_parameters, reduced, group, device),
    )  # fmt: skip
    one_s, computing_s = microbatch_seconds(block, head, row.layers)
    mine = (row.layers * block_parameters + head_parameters) // row.gpus
    optimizer_s = optimizer_seconds(mine, device)
    return FsdpTime(
        row.microbatches * one_s + optimizer_s,
        row.microbatches * (one_s - computing_s),
        optimizer_s,
    )


@cache
def block_seconds(
    width: int, heads: int, batch: int, length: int, device: str
) -> tuple[float, float]:
    """A block's forward and backward, without what is computed again."""
    d, t = width, batch * length
    forward = [
        layer_norm(t, d, BF16),
        linear(t, d, 3 * d, BF16),
        *[rows_gathered(t, d, BF16)] * 3,
        *rows_put(t, d, BF16),
        linear(t, d, d, BF16),
        fused("add", 2, (t, d), BF16),
        layer_norm(t, d, BF16),
        linear(t, d, 4 * d, BF16),
        fused("gelu", 1, (t, 4 * d), BF16),
        linear(t, 4 * d, d, BF16),
        fused("add", 2, (t, d), BF16),
    ]
    backward = [
        *linear_backward(t, 4 * d, d, BF16),
        fused("gelu_backward", 2, (t, 4 * d), BF16),
        *linear_backward(t, d, 4 * d, BF16),
        layer_norm_backward(t, d, BF16),
        fused("add", 2, (t, d), BF16),
        *linear_backward(t, d, d, BF16),
        rows_indexed(t, d, BF16),
        *rows_scattered(t, d, BF16) * 3,
        joined(3, t, d, BF16),
        *linear_backward(t, d, 3 * d, BF16),
        layer_norm_backward(t, d, BF16),
        fused("add", 2, (t, d), BF16),
    ]
    target = device_of(device)
    attention = flash(batch, heads, length, d // heads, BF16)
    gradients = flash_backward(batch, heads, length, d // heads, BF16)
    forward_s = seconds_of(forward, target) + seconds_of([attention], target) / FLASH_1
    backward_s = seconds_of(backward, target) + seconds_of([gradients], target) / FLASH_1
    return KERNEL_SHARE * forward_s, KERNEL_SHARE * backward_s


@cache
def head_seconds(width: int, vocabulary: int, tokens: int, device: str) -> tuple[float, float]:
    """Embedding, final norm, logits and loss, forward and backward."""
    d, v, t = width, vocabulary, tokens
    forward = [
        fused("add", 2, (t, d), BF16),
        fused("add", 2, (t, d), BF16),
        layer_norm(t, d, BF16),
        linear(t, d, v, BF16, bias=False),
        rowwise("_log_softmax", 1, t, v, BF16),
    ]
    backward = [
        rowwise("_log_softmax_backward_data", 1, t, v, BF16),
        *linear_backward(t, d, v, BF16, bias=False),
        layer_norm_backward(t, d, BF16),
        fused("add", 2, (t, d), BF16),
        fused("add", 2, (v, d), BF16),
    ]
    target = device_of(device)
    return KERNEL_SHARE * seconds_of(forward, target), KERNEL_SHARE * seconds_of(backward, target)


def flat_gradient_s(parameters: int, reduced: int, device: TargetDevice) -> float:
    """Gradients of a unit's tensors put into one, and cast for the reduction."""
    calls = [fused("add", 1, (parameters,), BF16)]
    if reduced == 4:
        calls.append(fused("add", 1, (parameters,), FP32))
    return seconds_of(calls, device)


def collectives_s(
    parameters: int, reduced: int, group: Group, device: TargetDevice
) -> tuple[float, float]:
    """Gathering a unit's parameters, and reducing its gradients."""
    assert device.sheet is not None
    link = NETWORK if group.hosts > 1 else None
    gather = collective_time(Collective.ALL_GATHER, 2 * parameters, group, device.sheet, link)
    reduce = collective_time(
        Collective.REDUCE_SCATTER, reduced * parameters, group, device.sheet, link
    )
    return gather.seconds, reduce.seconds


def microbatch_seconds(block: BlockTime, head: BlockTime, layers: int) -> tuple[float, float]:
    """Forward and backward of one microbatch; and what of it computes.

    Two lanes, one for kernels that compute and one for collectives. A gather starts when the block
    two before has been computed (``limit_all_gathers``: two are in flight).
    """
    computed: list[float] = []
    compute = network = busy = 0.0
    units = [head, *[block] * layers]
    for at, unit in enumerate(units):
        begin = max(network, computed[at - 2] if at >= 2 else 0.0)
        network = begin + unit.gather_s
        busy += unit.gather_s
        forward_s = 0.0 if unit is head else unit.forward_s
        compute = max(compute, network) + forward_s
        computed.append(compute)
    compute += head.forward_s + head.backward_s
    done = [compute, compute]
    for unit in [*[block] * layers, head]:
        # The root unit stays gathered through the step.
        if unit is block:
            network = max(network, done[-2]) + unit.gather_s
            busy += unit.gather_s
        compute = max(compute, network) + (unit.backward_s if unit is block else 0.0)
        done.append(compute)
        # The next gather was issued before this reduction.
        network = max(network, compute) + unit.reduce_s
        busy += unit.reduce_s
    computing_s = sum(unit.forward_s + unit.backward_s for unit in units)
    seconds = max(compute, network)
    # What runs beside collectives is slower; where they are exposed there is nothing to slow.
    overlapped = max(0.0, busy - (seconds - computing_s))
    return seconds + SLOWDOWN_BESIDE * min(overlapped, computing_s), computing_s


def optimizer_seconds(parameters: int, device: TargetDevice) -> float:
    """Norm and clipping of gradients, then decoupled AdamW op by op, on one rank's shard."""
    n = parameters
    steps = (
        ("pow", 1), ("mul_", 1), ("mul_", 1), ("add_", 2), ("mul_", 1), ("addcmul_", 3),
        ("sqrt", 1), ("div_", 1), ("add_", 1), ("mul_", 1), ("addcdiv_", 3), ("zero_", 1),
    )  # fmt: skip
    return seconds_of([elementwise(name, inputs, n, FP32) for name, inputs in steps], device)
