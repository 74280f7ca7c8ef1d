"""What an op costs on a device: the time of the kernels that run it.

A roof is what no kernel can beat; this is what PyTorch's kernels are expected to take.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gobrrr.models.roof import MEMORY, Roof, roof_of
from gobrrr.models.target import TargetDevice, target_device
from gobrrr.timeline.ops import OpCall
from gobrrr.work.estimate import Work

__all__ = ["DEFAULT_FLAGS", "Flags", "KernelEstimate", "TargetDevice", "estimate_op",
           "target_device"]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Flags:
    """Settings of PyTorch that choose kernels, at their defaults.

    Attributes:
        tf32_matmul: ``torch.backends.cuda.matmul.allow_tf32``.
        tf32_convolution: ``torch.backends.cudnn.allow_tf32``.
    """

    tf32_matmul: bool = False
    tf32_convolution: bool = True


DEFAULT_FLAGS = Flags()


@dataclass(frozen=True, slots=True)
class KernelEstimate:
    """Expected device time of one op.

    Attributes:
        time_s: all its kernels, their fixed cost included, in seconds; never below the roof.
        roof: what no kernel can beat, with its sides.
        fixed_s: the part of ``time_s`` that its kernels would take without any work.
        kernels: how many kernels it launches.
        regime: ``compute``, ``memory`` or ``overhead`` (fixed cost), the largest part of the time.
        level: the memory level whose bandwidth counts; ``""`` if no bytes move.
        because: the arithmetic, as a sentence.
    """

    time_s: float
    roof: Roof
    fixed_s: float
    kernels: int
    regime: str
    level: str
    because: str

    @property
    def matrix_s(self) -> float:
        """The matrix side of the roof, in seconds."""
        return self.roof.matrix_s

    @property
    def vector_s(self) -> float:
        """The vector side of the roof, in seconds."""
        return self.roof.vector_s

    @property
    def memory_s(self) -> float:
        """The memory side of the roof, in seconds."""
        return self.roof.memory_s


def estimate_op(
    call: OpCall,
    work: Work,
    device: TargetDevice,
    *,
    flags: Flags = DEFAULT_FLAGS,
    cold_bytes: float | None = None,
) -> KernelEstimate | None:
    """Expected time of one op on ``device``.

    Args:
        call: the op with its shapes.
        work: its least work (``gobrrr.work.work_of``).
        device: what runs it.
        flags: settings of PyTorch that choose kernels.
        cold_bytes: of the bytes it reads, those that are not in the device's last-level cache;
            ``None`` where its neighbours are not known: then a working set that fits is in it.

    Returns:
        ``None`` where the work or a ceiling is unknown.
    """
    done = work_with_flags(call, work, device, flags)
    roof = roof_of(done, device.ceilings)
    if roof is None:
        return None
    if done.flops == 0 and not done.bytes_moved:
        return KernelEstimate(0.0, roof, 0.0, 0, "overhead", "", "It computes and moves nothing.")
    fixed_s = device.kernel_fixed_s
    time_s = fixed_s + roof.time_s
    if fixed_s > roof.time_s:
        regime = "overhead"
    else:
        regime = "memory" if roof.regime == MEMORY else "compute"
    because = f"{roof.time_s * 1e6:.3g} us at the ceilings and {fixed_s * 1e6:.3g} us of fixed cost"
    return KernelEstimate(time_s, roof, fixed_s, 1, regime, roof.level, because)


def work_with_flags(call: OpCall, work: Work, device: TargetDevice, flags: Flags) -> Work:
    """The work in the format that its multiplications run in: TF32 where PyTorch allows it."""
    if work.compute_dtype != "float32" or not work.matrix_flops:
        return work
    is_convolution = "conv" in call.name or "cudnn" in call.name
    allowed = flags.tf32_convolution if is_convolution else flags.tf32_matmul
    if allowed and device.kind == "cuda" and device.ceilings.value("matrix.tf32") is not None:
        return replace(work, compute_dtype="tf32")
    return work
