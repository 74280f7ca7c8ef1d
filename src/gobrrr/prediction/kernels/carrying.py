"""One measured kernel on another device: its time there, from its time here.

What a kernel reached here of what the model expects, it is taken to reach there too: its time
scales by the ratio of the two estimates, which know both devices' ceilings, tiles, caches and
achieved fractions. So the roof goes by the ceilings, and what was measured below the roof stays in
proportion.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gobrrr.prediction.kernels.kernel_model import DEFAULT_FLAGS, Flags, estimate_op
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.roofline.roof import Roof, roof_of
from gobrrr.timeline.ops import OpCall
from gobrrr.work.estimate import Work

# How far one kernel's departure from the model carries over to the other device, as a power: 0
# would trust the model alone, 1 the measurement alone. A kernel that is slower than modelled is so
# in part for reasons of its shape, which stay, and in part for reasons of the vendor's library,
# which do not. On the fitted half of the op shapes of the recorded H100 and MI300X steps anything
# from 0 to 0.3 does about as well; the larger keeps more of what was measured, which matters for
# ops that the model knows little about. One architecture runs one library's kernels: all of it
# carries over. Between architectures of one vendor: in the middle, not fitted for want of data.
_SAME_ARCHITECTURE, _SAME_VENDOR, _OTHER_VENDOR = 1.0, 0.6, 0.3


def carried_power(source: TargetDevice, target: TargetDevice) -> float:
    """The power of a kernel's departure from the model that carries over, 0 to 1."""
    if source.architecture and source.architecture == target.architecture:
        return _SAME_ARCHITECTURE
    return _SAME_VENDOR if source.kind == target.kind else _OTHER_VENDOR


@dataclass(frozen=True, slots=True)
class CarriedTime:
    """A kernel's time on the target.

    ``seconds``: expected. ``target_roof``: of its work on the target, ``None`` where a ceiling is
    missing. ``how``: which rule gave the time.
    """

    seconds: float
    target_roof: Roof | None
    how: str


def work_on(work: Work, device: TargetDevice) -> Work:
    """The work as PyTorch has it done on a device: 16-bit products without a unit in float32."""
    if work.compute_dtype not in ("bfloat16", "float16") or not work.matrix_flops:
        return work
    if roof_of(work, device.ceilings) is not None:
        return work
    wide = replace(work, compute_dtype="float32")
    return work if roof_of(wide, device.ceilings) is None else wide


# Of 16-bit products that are computed in float32: no TF32 where there is not even a 16-bit unit.
WITHOUT_TF32 = Flags(tf32_matmul=False, tf32_convolution=False)


def carry_kernel(
    measured_s: float,
    call: OpCall,
    whole: Work,
    share: float,
    source: TargetDevice,
    target: TargetDevice,
    flags: Flags = DEFAULT_FLAGS,
) -> CarriedTime | None:
    """Time on ``target`` of a kernel that took ``measured_s`` on ``source``.

    Args:
        measured_s: the kernel's duration, fixed cost included.
        call: the op it belongs to.
        whole: the op's work.
        share: the kernel's part of that work (an op may launch several).
        source: the device that it was measured on.
        target: the device to carry it to.
        flags: settings of PyTorch that choose kernels.

    Returns:
        ``None`` where either device has no ceiling for the work.
    """
    here = estimate_op(call, whole, source, flags=flags)
    done = work_on(whole, target)
    there = estimate_op(call, done, target, flags=flags if done is whole else WITHOUT_TF32)
    if here is None or there is None or here.time_s <= 0:
        return None
    departure = measured_s / (here.time_s * share)
    seconds = there.time_s * share * departure ** carried_power(source, target)
    roof = roof_of(done, target.ceilings)
    if roof is not None:
        seconds = max(seconds, roof.time_s * share)
    return CarriedTime(seconds, roof, "scaled by the two devices' estimates")


def carry_unknown(
    measured_s: float, bound: str, source: TargetDevice, target: TargetDevice, dtype: str = ""
) -> float | None:
    """Time of a kernel whose work is not known, from what its name says it is bound by.

    ``bound``: ``memory`` scales by the memories' bandwidth, ``compute`` by the matrix rate of
    ``dtype``. ``None`` for anything else, or where a ceiling is missing.
    """
    beyond_s = max(measured_s - source.kernel_fixed_s, 0.0)
    if bound == "memory" and source.ceilings.levels and target.ceilings.levels:
        ratio = source.ceilings.levels[-1].bandwidth_bytes_per_s(0.0) / target.ceilings.levels[
            -1
        ].bandwidth_bytes_per_s(0.0)
        return target.kernel_fixed_s + beyond_s * ratio
    if bound == "compute":
        here = source.ceilings.matrix_flops_per_s(dtype or "float16")
        there = target.ceilings.matrix_flops_per_s(dtype or "float16")
        if here is not None and there is not None:
            return target.kernel_fixed_s + beyond_s * here / there
    return None
