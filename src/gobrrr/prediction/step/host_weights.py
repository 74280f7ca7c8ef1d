"""What a kind of op costs the host of a GPU, over one addition of two tensors.

The host's part of an op is not its dispatch alone: cuBLAS looks up a kernel for a product, cuDNN
and MIOpen fill descriptors and look up a plan, norms allocate statistics. The weights are medians
of the ops' durations over that of additions in the same recorded trace, so that neither the machine
nor the profiler, which slows all of them, is in it. Products, norms, attention and sums are from
three traces of an H100 (BERT, Qwen, ViT: geometric means of products 2.3, 4.6 and 2.3; norms 2.1
and 2.0; attention 4.0 and 6.3; sums 1.3); convolutions, batch norms and their gradients from a
ResNet-50 trained on an H200 (benchmarks/results/gpu_nvidia-h200_2026-11-26/op_durations.json: 7.0,
4.3, 8.0 and 3.0). Not fitted: one convolution a step on the H100 takes 8.8 (pull request 51390 of
pytorch/pytorch times it at 52 us with cuDNN); an MI300X has 3.4, 3.8 and 3.7; 2.4 and 2.3; 6.8 and
9.9; 1.4, and in a ResNet a batch norm 0.87 of a convolution, the gradients of either 0.63 and 1.43
of the op; a training step on an A100 3.3, 3.0 and 2.0 of products, norms and sums, and gradients of
layer norms 1.3 of them.
"""

from __future__ import annotations

from gobrrr.timeline.data import Phase
from gobrrr.timeline.ops import OpCall
from gobrrr.work.traits import Role, traits_of

PRODUCT, ATTENTION, CONVOLUTION, BATCH_NORM, NORM, REDUCTION = (
    "product", "attention", "convolution", "batch norm", "norm", "reduction",
)  # fmt: skip
WEIGHTS: dict[str, float] = {
    PRODUCT: 2.9, ATTENTION: 5.0, CONVOLUTION: 7.0, BATCH_NORM: 4.3, NORM: 2.0, REDUCTION: 1.3,
}  # fmt: skip
_BACKWARD: dict[str, float] = {
    **WEIGHTS, CONVOLUTION: 8.0, BATCH_NORM: 3.0, NORM: 2.0 * 1.3
}  # fmt: skip
_NORMS = ("layer_norm", "layer_norm_backward", "group_norm", "group_norm_backward")


def kind_of(call: OpCall) -> str | None:
    """The kind by which an op costs the host; ``None``: as much as an addition."""
    name = call.name.partition("::")[2]
    traits = traits_of(call.name)
    if "batch_norm" in name:
        return BATCH_NORM
    if "attention" in name:
        return ATTENTION
    if traits.fusion is Role.CONTRACTION:
        return CONVOLUTION if "conv" in name else PRODUCT
    if traits.passes in _NORMS:
        return NORM
    return REDUCTION if traits.passes == "reduction" else None


def host_weight(call: OpCall, phase: Phase) -> float:
    """Host time of an op's call on a GPU over that of an addition."""
    kind = kind_of(call)
    if kind is None:
        return 1.0
    return (_BACKWARD if phase is Phase.BACKWARD else WEIGHTS)[kind]
