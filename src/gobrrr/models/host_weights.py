"""What a kind of op costs the host of a GPU, over one addition of two tensors.

The host's part of an op is not its dispatch alone: cuBLAS looks up a kernel for a product, cuDNN
and MIOpen fill descriptors and look up a plan, norms allocate statistics. The weights are medians
of the ops' durations over that of additions in the same recorded trace, so that neither the machine
nor the profiler, which slows all of them, is in it. Fitted on three traces of an H100 (BERT, Qwen,
ViT: geometric means of products 2.3, 4.6 and 2.3; norms 2.1 and 2.0; attention 4.0 and 6.3; sums
1.3; a convolution 8.8, which pull request 51390 of pytorch/pytorch times at 52 us with cuDNN). Not
fitted: the same on an MI300X has 3.4, 3.8 and 3.7; 2.4 and 2.3; 6.8 and 9.9; 1.4; and a training
step on an A100 3.3, 3.0 and 2.0 of products, norms and sums. A batch norm takes 0.87 of a
convolution, the gradients of either 0.63 and 1.43 of the op, in a ResNet trained on an MI300X, and
those of a layer norm 1.3 in the step on the A100.
"""

from __future__ import annotations

from gobrrr.timeline.data import Phase
from gobrrr.timeline.ops import OpCall
from gobrrr.work.traits import Role, traits_of

PRODUCT, ATTENTION, CONVOLUTION, BATCH_NORM, NORM, REDUCTION = (
    "product", "attention", "convolution", "batch norm", "norm", "reduction",
)  # fmt: skip
WEIGHTS: dict[str, float] = {
    PRODUCT: 2.9, ATTENTION: 5.0, CONVOLUTION: 8.8, BATCH_NORM: 7.7, NORM: 2.0, REDUCTION: 1.3,
}  # fmt: skip
_BACKWARD: dict[str, float] = {
    **WEIGHTS, CONVOLUTION: 8.8 * 1.43, BATCH_NORM: 7.7 * 0.63, NORM: 2.0 * 1.3
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
