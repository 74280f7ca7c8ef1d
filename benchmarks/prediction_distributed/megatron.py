"""An iteration of a GPT under Megatron-DeepSpeed, from its ops, its collectives and its schedule.

What the source of the rows says is in their README; what it does not say is assumed here:

- every layer is computed again in the backward pass, its two all-reduces included; each layer has
  two all-reduces forward and two backward, none of them beside anything else (tensor parallelism);
- layers are spread evenly over the stages of a pipeline; the embedding is on the first stage and
  the logits on the last, whose shared weight has its gradients added up at the end;
- gradients are added up in float16, and reduced over the data-parallel copies when all microbatches
  are done, beside nothing; Adam keeps float32 copies and moments of its own;
- attention runs its fused softmax only where heads of a rank times the microbatch are a multiple of
  four; else scores are cast to float32, scaled, masked, taken the softmax of and cast back, an
  operator each (``FusedScaleMaskSoftmax.is_kernel_available`` and ``forward_torch_softmax`` in
  megatron/model/fused_softmax.py, with ``--apply-query-key-layer-scaling``, the default);
- on one rank the vocabulary is not padded: rows of odd length make its product slow (the rows of
  two and more ranks are met by a padded one, those of one are not), ``odd_share`` of the rate;
- a pass through a layer takes what its kernels and collectives take or what its host takes to
  launch them, whichever is longer; ranks that share a layer come to a collective one after the
  other, and the first waits. What hosts take, how long is waited and how much faster than the model
  of kernels Megatron's own are is fitted on the fitted models.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil, log2

from benchmarks.prediction_distributed.ops import (
    batched,
    copied,
    device_of,
    elementwise,
    fused,
    joined,
    layer_norm,
    layer_norm_backward,
    linear,
    linear_backward,
    reduced_rows,
    rowwise,
    seconds_of,
)
from benchmarks.prediction_distributed.rows import GPUS_A_HOST, MegatronRow

from gobrrr.prediction.mesh.collectives import Collective, Group, HostLink, collective_time
from gobrrr.prediction.mesh.pipeline_schedule import StageTime, pipeline_time
from gobrrr.timeline.ops import OpCall

FP16, FP32 = "float16", "float32"
# Heads times sequences that the fused softmax takes a multiple of.
FUSED_BATCHES = 4
DEVICE = "A100-SXM-80GB"
VOCABULARY = 50257
# Of a host with several: eight interfaces of 200 Gb/s, one for each GPU.
INTERFACE_BYTES_PER_S = 25e9


@dataclass(frozen=True, slots=True)
class Constants:
    """What is fitted on the fitted models' rows.

    Attributes:
        host_op_s: what the host takes for each operator of a layer.
        host_collective_s: and for each collective of a group of two; of four it is twice as much,
            of eight three times.
        wait_s: what ranks wait for each other in each collective of two; of more ranks likewise.
        kernel_share: seconds of Megatron's kernels over those of the model.
        odd_share: the rate of a product whose rows are odd over that of one whose rows are padded.
    """

    host_op_s: float
    host_collective_s: float
    wait_s: float
    kernel_share: float
    odd_share: float


FITTED = Constants(56e-6, 60e-6, 80e-6, 0.9, 0.3)
# Fitted without the rows of one number of ranks that share a layer: how far off steps of a number
# are that nothing was fitted on (``intervals``). By steps of each constant from 20 % down to 1.5 %,
# to the least mean of |log(measured / predicted)|.
WITHOUT = {
    2: Constants(56e-6, 59e-6, 80e-6, 0.9, 0.3),
    8: Constants(56e-6, 63e-6, 187e-6, 0.878, 0.286),
}


@dataclass(frozen=True, slots=True)
class PassTime:
    """Seconds of a pass through one layer on the device, and the host's for it."""

    device_s: float
    host_s: float

    @property
    def seconds(self) -> float:
        return max(self.device_s, self.host_s)


def iteration_seconds(row: MegatronRow, constants: Constants = FITTED) -> float:
    """The iteration of a row."""
    t, p = row.tensor, row.pipeline
    tokens = row.micro_batch * row.seq_len
    forward, backward = layer_passes(
        row.width, row.heads, row.micro_batch, row.seq_len, t, constants
    )
    embedding = embedding_seconds(row.width, tokens, t)
    head = head_seconds(row.width, tokens, t, constants)
    send_s = 0.0
    if p > 1:
        send_s = collective(Collective.SEND, 2 * tokens * row.width, 2, stride=t * row.data)
    layers = row.layers // p
    stages = []
    for stage in range(p):
        forward_s = layers * forward.seconds
        # Computed again first, then backward.
        backward_s = layers * (forward.seconds + backward.seconds)
        if stage == 0:
            forward_s += embedding[0]
            backward_s += embedding[1]
        if stage == p - 1:
            forward_s += head[0]
            backward_s += head[1]
        stages.append(StageTime(forward_s, backward_s, send_s))
    found = pipeline_time(stages, p, row.microbatches)
    return found.seconds + update_seconds(row)


@cache
def layer_passes(
    width: int, heads: int, batch: int, length: int, t: int, constants: Constants
) -> tuple[PassTime, PassTime]:
    """Forward and backward of one layer on one of ``t`` ranks."""
    h, n, s = width, batch * length, length
    a, d = batch * heads // t, width // heads
    scores = (a * s, s)
    forward: list[OpCall] = [
        layer_norm(n, h, FP16),
        linear(n, h, 3 * h // t, FP16),
        batched(a, s, d, s, FP16),
        *softmax(a, s),
        fused("native_dropout", 1, scores, FP16),
        batched(a, s, s, d, FP16),
        copied(n, h // t, FP16),
        linear(n, h // t, h, FP16, bias=False),
        fused("native_dropout_add", 2, (n, h), FP16),
        layer_norm(n, h, FP16),
        linear(n, h, 4 * h // t, FP16, bias=False),
        fused("gelu_add", 1, (n, 4 * h // t), FP16),
        linear(n, 4 * h // t, h, FP16, bias=False),
        fused("native_dropout_add", 2, (n, h), FP16),
    ]
    backward: list[OpCall] = [
        fused("mul", 2, (n, h), FP16),
        reduced_rows(n, h, FP16),
        *linear_backward(n, 4 * h // t, h, FP16, bias=False),
        fused("gelu_backward", 2, (n, 4 * h // t), FP16),
        reduced_rows(n, 4 * h // t, FP16),
        *linear_backward(n, h, 4 * h // t, FP16, bias=False),
        layer_norm_backward(n, h, FP16),
        fused("add", 2, (n, h), FP16),
        fused("mul", 2, (n, h), FP16),
        reduced_rows(n, h, FP16),
        *linear_backward(n, h // t, h, FP16, bias=False),
        copied(n, h // t, FP16),
        batched(a, s, d, s, FP16),
        batched(a, s, s, d, FP16),
        fused("mul", 2, scores, FP16),
        *softmax_backward(a, s),
        batched(a, s, s, d, FP16),
        batched(a, s, s, d, FP16),
        joined(3, n, h // t, FP16),
        *linear_backward(n, h, 3 * h // t, FP16),
        layer_norm_backward(n, h, FP16),
        fused("add", 2, (n, h), FP16),
        # Gradients of the weights, added to those of the microbatches before.
        fused("add", 2, (12 * h * h // t,), FP16),
    ]
    device = device_of(DEVICE)
    both_s = 2 * (collective(Collective.ALL_REDUCE, 2 * n * h, t) + constants.wait_s * log2(t))
    asks_s = 2 * constants.host_collective_s * log2(t)
    forward_s, backward_s = (
        constants.kernel_share * seconds_of(each, device) for each in (forward, backward)
    )
    return (
        PassTime(forward_s + both_s, len(forward) * constants.host_op_s + asks_s),
        PassTime(backward_s + both_s, len(backward) * constants.host_op_s + asks_s),
    )


def softmax(batches: int, length: int) -> list[OpCall]:
    """Of the scores of ``batches`` heads, by the fused kernel where it is taken."""
    rows, n = batches * length, batches * length * length
    if batches % FUSED_BATCHES == 0:
        return [rowwise("_softmax", 1, rows, length, FP16)]
    return [
        fused("add", 1, (n,), FP32), elementwise("mul", 1, n, FP32), elementwise("mul", 1, n, FP32),
        rowwise("_softmax", 1, rows, length, FP32), fused("add", 1, (n,), FP32),
    ]  # fmt: skip


def softmax_backward(batches: int, length: int) -> list[OpCall]:
    """The same, backward."""
    rows, n = batches * length, batches * length * length
    if batches % FUSED_BATCHES == 0:
        return [rowwise("_softmax_backward_data", 2, rows, length, FP16)]
    return [
        fused("add", 1, (n,), FP32), rowwise("_softmax_backward_data", 2, rows, length, FP32),
        elementwise("mul", 1, n, FP32), elementwise("mul", 1, n, FP32), fused("add", 1, (n,), FP32),
    ]  # fmt: skip


@cache
def embedding_seconds(width: int, tokens: int, t: int) -> tuple[float, float]:
    """Tokens and positions to vectors, forward and backward."""
    shape = (tokens, width)
    both = [fused("add", 2, shape, FP16), fused("native_dropout", 1, shape, FP16)]
    summed_s = collective(Collective.ALL_REDUCE, 2 * tokens * width, t)
    seconds = seconds_of(both, device_of(DEVICE))
    whole = [fused("add", 2, (vocabulary(t) // t * width,), FP16)]
    return seconds + summed_s, seconds + seconds_of(whole, device_of(DEVICE))


@cache
def head_seconds(width: int, tokens: int, t: int, constants: Constants) -> tuple[float, float]:
    """Final norm, logits of this rank's part of the vocabulary, and their cross entropy."""
    v, n, h = vocabulary(t) // t, tokens, width
    cast = fused("add", 1, (n, v), FP16)
    shifted = [elementwise(op, 1, n * v, FP32) for op in ("mul", "exp", "mul")]
    forward = [
        layer_norm(n, h, FP16), cast, cast, reduced_rows(v, n, FP32), *shifted,
        reduced_rows(v, n, FP32),
    ]  # fmt: skip
    backward = [
        elementwise("mul", 1, n * v, FP32), cast, cast, layer_norm_backward(n, h, FP16),
    ]  # fmt: skip
    device = device_of(DEVICE)
    small_s = 3 * collective(Collective.ALL_REDUCE, 4 * n, t)
    grad_s = collective(Collective.ALL_REDUCE, 2 * n * h, t)
    share = (constants.odd_share if t == 1 else 1.0) / constants.kernel_share
    logits_s = seconds_of([linear(n, h, v, FP16, bias=False)], device) / share
    logits_backward_s = seconds_of(linear_backward(n, h, v, FP16, bias=False), device) / share
    return (
        constants.kernel_share * seconds_of(forward, device) + logits_s + small_s,
        constants.kernel_share * seconds_of(backward, device) + logits_backward_s + grad_s,
    )


def update_seconds(row: MegatronRow) -> float:
    """Reducing gradients over copies and the shared embedding, then Adam in float32."""
    v = vocabulary(row.tensor)
    of_layers = row.layers * 12 * row.width**2 // (row.tensor * row.pipeline)
    of_embedding = v * row.width // row.tensor
    mine = of_layers + of_embedding
    reduced_s = collective(Collective.ALL_REDUCE, 2 * mine, row.data, stride=row.tensor)
    if row.pipeline > 1:
        far = row.tensor * row.data * (row.pipeline - 1)
        reduced_s += collective(Collective.ALL_REDUCE, 2 * of_embedding, 2, stride=far)
    # Gradients cast to float32 and their norm; three tensors read and written, gradients read; the
    # new weights cast to float16.
    adam = [
        elementwise("mul", 1, mine, FP32), reduced_rows(mine // 1024, 1024, FP32),
        fused("add_mul_sqrt_div", 3, (mine,), FP32), fused("add_mul", 2, (mine,), FP32),
        fused("add", 1, (mine,), FP16),
    ]  # fmt: skip
    return reduced_s + seconds_of(adam, device_of(DEVICE))


def vocabulary(t: int) -> int:
    """Megatron pads the vocabulary to a multiple of 128 for each rank."""
    return ceil(VOCABULARY / (128 * t)) * 128 * t


def collective(kind: Collective, n_bytes: float, ranks: int, stride: int = 1) -> float:
    """A collective of ranks that lie ``stride`` apart, the others at work likewise.

    Each GPU of a host sends through its own interface: a group has those of its members.
    """
    sheet = device_of(DEVICE).sheet
    assert sheet is not None
    here = min(ranks, ceil(GPUS_A_HOST / stride))
    hosts = ceil(ranks / here)
    link = HostLink(here * INTERFACE_BYTES_PER_S, 0.0) if hosts > 1 else None
    return collective_time(kind, n_bytes, Group(hosts * here, hosts), sheet, link).seconds
