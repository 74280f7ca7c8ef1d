"""Bring a profiled device step to the length of the unprofiled one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gobrrr.attribution.device.attribute import DeviceAttribution
from gobrrr.attribution.device.profiler_cost import BUSY_IDLE, SAID
from gobrrr.attribution.leaves import BELOW_LEAF, LEAVES, OF_THE_DEVICE, ROOF_LEAF, KernelShares
from gobrrr.measure import Summary
from gobrrr.timeline.quantities import percent, time_text

_FIXED_LEAF = "overhead.kernel_fixed_cost"
# Where the device is idle for more of the step its host bounds it.
_HOST_BOUND_IDLE = 0.5
# Clocks of a card change by no more than this share, with power, heat, and a start from idle.
_CLOCKS = 0.5


@dataclass(frozen=True)
class Scales:
    """What host time and kernel time were multiplied by."""

    host: float
    kernel: float


def _host_leaves() -> list[str]:
    overhead = (name for name in LEAVES if name.startswith("overhead."))
    return [name for name in overhead if name not in OF_THE_DEVICE]


def scale_to_step(
    found: DeviceAttribution, step_ns: float, *, same_clock: bool = False
) -> tuple[DeviceAttribution, Scales]:
    """What is left between the profiled step and the timed one goes to who can have made it.

    A profiler makes no host faster. Where the device bounds the step its kernels took longer or
    shorter (clocks, power); where the host does, the host did; in between a longer timed step is
    nobody's (``overhead.unexplained``). More than 2 % of the step is said, and so is what the
    profiler took; with kernels of as much time as could be the reason, that they may be it.
    ``same_clock``: the card ran at the same clock throughout, and they are not.
    """
    attribution = found.attribution
    leaves = dict(attribution.leaves_ns)
    host_ns = sum(leaves[name] for name in _host_leaves())
    owned_ns = float(attribution.kernels.owned_ns.sum())
    more_ns = step_ns - attribution.step_ns
    # Of the timed step, as far as its kernels are those that were profiled.
    idle = (host_ns + more_ns) / step_ns if step_ns > 0 else 0.0
    host = kernel = 1.0
    if idle < BUSY_IDLE and owned_ns > 0 and owned_ns + more_ns > 0:
        kernel = (owned_ns + more_ns) / owned_ns
    elif host_ns + more_ns >= 0 < host_ns and (
        more_ns < 0 or idle > _HOST_BOUND_IDLE or same_clock
    ):
        host = (host_ns + more_ns) / host_ns
    elif more_ns > 0:
        leaves["overhead.unexplained"] += more_ns
    else:
        host = kernel = step_ns / attribution.step_ns
    for name in _host_leaves():
        leaves[name] *= host
    if host == kernel:
        leaves["overhead.kernel_gap"] *= kernel
    kernels = _timed(attribution.kernels, kernel, leaves)
    notices = attribution.notices
    # What is wrong if kernels are the reason and not the host.
    of_kernels = not same_clock and _CLOCKS * owned_ns > SAID * step_ns
    if found.profiler_ns > SAID * step_ns:
        notices = (*notices, _cost(found.profiler_ns, step_ns, of_kernels))
    if abs(more_ns) > SAID * step_ns:
        notices = (*notices, _said(host, kernel, more_ns, idle, of_kernels))
    elif found.profiler_ns + abs(more_ns) > SAID * step_ns >= found.profiler_ns:
        notices = (*notices, _cost(found.profiler_ns + abs(more_ns), step_ns, of_kernels))
    result = replace(
        attribution,
        step_ns=step_ns,
        leaves_ns=leaves,
        kernels=kernels,
        idle=tuple(
            gap
            if gap.leaf in OF_THE_DEVICE and host != kernel
            else replace(gap, duration_ns=gap.duration_ns * host)
            for gap in attribution.idle
        ),
        notices=notices,
    )
    result.check()
    before = found.idle_before_ns * host
    return replace(found, attribution=result, idle_before_ns=before), Scales(host, kernel)


def _timed(shares: KernelShares, factor: float, leaves: dict[str, float]) -> KernelShares:
    """Kernels of another length, whose fixed cost and roofs stay; ``leaves`` are changed alike."""
    if factor == 1.0:
        return shares
    owned = shares.owned_ns * factor
    fixed = np.minimum(shares.fixed_ns, owned)
    roof = np.minimum(shares.roof_ns, owned - fixed)
    below = owned - fixed - roof
    leaves[_FIXED_LEAF] += float((fixed - shares.fixed_ns).sum())
    for regime, (at_roof, under) in enumerate(zip(ROOF_LEAF, BELOW_LEAF)):
        rows = shares.regime == regime
        leaves[at_roof] += float((roof - shares.roof_ns)[rows].sum())
        leaves[under] += float((below - shares.below_ns)[rows].sum())
    return replace(
        shares, duration_ns=shares.duration_ns * factor, owned_ns=owned, fixed_ns=fixed,
        page_faults_ns=shares.page_faults_ns * factor, roof_ns=roof, below_ns=below,
    )  # fmt: skip


def unsteady(found: DeviceAttribution, time: Summary) -> tuple[str, ...]:
    """That the median step, of which the device is busy for most, is not known well: a sentence.

    ``time``: of the timed steps, in seconds.
    """
    busy_ns = float(found.attribution.kernels.owned_ns.sum())
    known = time.high - time.low <= SAID * time.median
    if known or busy_ns < _HOST_BOUND_IDLE * time.median * 1e9:
        return ()
    return (
        f"The median step is between {time_text(time.low)} and {time_text(time.high)}, while the "
        "device was busy for most of each: its clocks may have changed, and with them the part of "
        "the kernels.",
    )


def _cost(profiler_ns: float, step_ns: float, of_kernels: bool) -> str:
    """That much of the profiled step was the profiler's."""
    text = (
        f"The profiler took {time_text(profiler_ns * 1e-9)} beside a step of "
        f"{time_text(step_ns * 1e-9)}, which was taken off the host's time: the sum of that is as "
        "timed, what of it is Python, dispatch and launches is less certain."
    )
    if not of_kernels:
        return text
    return f"{text[:-1]}; where the card's clocks were lower meanwhile, kernels took some of it."


def _said(host: float, kernel: float, more_ns: float, idle: float, of_kernels: bool) -> str:
    """Who was slower, in a sentence."""
    length = time_text(abs(more_ns) * 1e-9)
    which = "timed steps took {} longer than the profiled ones"
    if more_ns < 0:
        which = "profiled steps took {} longer than the timed ones, beyond the profiler's own cost"
    text = f"The {which.format(length)}"
    if host == kernel != 1.0:
        return f"{text}, more than their host time: all parts were scaled alike and may be wrong."
    if kernel != 1.0:
        changed = percent(abs(kernel - 1.0), 1)
        return (
            f"{text} while the device was busy: kernels differ by {changed} (clocks change with "
            "power and heat), which stands under the kernels."
        )
    if host != 1.0:
        text += (
            f" while the device waited for its host: host times were multiplied by {host:.2f}, so "
            "that their parts are less certain."
        )
        if not of_kernels:
            return text
        return f"{text[:-1]}; where the card's clocks changed, the kernels are the reason instead."
    return (
        f"{text}, and the device was idle for {percent(idle)} of a step: whether the host or the "
        "device (clocks) was slower is not known, and the difference is unexplained."
    )
