"""Bring a profiled device step to the length of the unprofiled one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gobrrr.attribution.device import DeviceAttribution

# Leaves of ``overhead`` that are time of the device itself: a profiler does not stretch them.
_DEVICE_OVERHEAD = ("overhead.kernel_fixed_cost",)


@dataclass(frozen=True)
class Scales:
    """What host time and kernel time were multiplied by."""

    host: float
    kernel: float


def scale_to_step(found: DeviceAttribution, step_ns: float) -> tuple[DeviceAttribution, Scales]:
    """Scale host leaves so that the sum is ``step_ns``; kernels only if they alone exceed it."""
    attribution = found.attribution
    leaves = attribution.leaves_ns
    host_leaves = [
        name for name in leaves if name.startswith("overhead.") and name not in _DEVICE_OVERHEAD
    ]
    host_ns = sum(leaves[name] for name in host_leaves)
    kernel_ns = attribution.step_ns - host_ns
    kernel = min(1.0, step_ns / kernel_ns) if kernel_ns > 0 else 1.0
    room_ns = step_ns - kernel_ns * kernel
    host = room_ns / host_ns if host_ns > 0 else 1.0
    scaled = {
        name: value * (host if name in host_leaves else kernel) for name, value in leaves.items()
    }
    if host_ns <= 0:
        # A device that was never idle under the profiler has no host time to stretch: what is
        # missing has no known cause.
        scaled["overhead.unexplained"] += room_ns
    result = replace(
        attribution,
        step_ns=step_ns,
        leaves_ns=scaled,
        kernels=attribution.kernels.scaled(kernel),
        idle=tuple(replace(gap, duration_ns=gap.duration_ns * host) for gap in attribution.idle),
    )
    result.check()
    before = found.idle_before_ns * host
    return replace(found, attribution=result, idle_before_ns=before), Scales(host, kernel)
