"""Settings and versions of PyTorch that choose kernels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.timeline.ops import OpCall
from gobrrr.work.estimate import Work

# The kernel of ``index_select`` and ``embedding`` before PyTorch 2.8.
_ELEMENT_BY_ELEMENT = "indexSelectLargeIndex"


@dataclass(frozen=True, slots=True)
class Flags:
    """Settings of PyTorch that choose kernels, at their defaults.

    Attributes:
        tf32_matmul: ``torch.backends.cuda.matmul.allow_tf32``.
        tf32_convolution: ``torch.backends.cudnn.allow_tf32``, of its recurrent layers too.
        row_vectors: whether lookups of whole rows copy 16 bytes at a time, as since PyTorch 2.8
            (pull requests 151490, 151715 and 151753 of pytorch/pytorch).
    """

    tf32_matmul: bool = False
    tf32_convolution: bool = True
    row_vectors: bool = True


DEFAULT_FLAGS = Flags()


def flags_of_kernels(names: Iterable[str]) -> Flags:
    """The flags that the names of an op's recorded kernels speak of."""
    if any(_ELEMENT_BY_ELEMENT in name for name in names):
        return replace(DEFAULT_FLAGS, row_vectors=False)
    return DEFAULT_FLAGS


def work_with_flags(call: OpCall, work: Work, device: TargetDevice, flags: Flags) -> Work:
    """The work in the format that its multiplications run in: TF32 where PyTorch allows it."""
    if work.compute_dtype != "float32" or not work.matrix_flops:
        return work
    if "_efficient_attention" in call.name:
        # Compiled to multiply in parts (``kernels.attention_time``), whatever is allowed.
        return work
    by_cudnn = "conv" in call.name or "cudnn_rnn" in call.name
    allowed = flags.tf32_convolution if by_cudnn else flags.tf32_matmul
    if allowed and device.kind == "cuda" and device.ceilings.value("matrix.tf32") is not None:
        return replace(work, compute_dtype="tf32")
    return work
