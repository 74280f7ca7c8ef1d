"""What a CPU step is bound by, told without its time: by processor time, and by what it does.

Neighbours make a step longer and its processor time hardly. Of the processor time C of the step's
thread, kernels take no more than the shortest time that each was seen to take while steps were
profiled (K), and all else no more than its own shortest (O): neighbours only add. Where K is less
than a part of C the rest is overhead; where O is, the rest are kernels, and FLOPs, bytes and page
faults at the ceilings tell compute from memory. Where both are or neither is, nothing is told.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gobrrr.attribution.attributed import Provisional
from gobrrr.attribution.cpu.attribute import CpuAttribution
from gobrrr.attribution.lane import KERNEL, StepPieces
from gobrrr.roofline.roof import COMPUTE_MATRIX, COMPUTE_VECTOR, MEMORY

# What may be left of the processor time for the side that a step is not bound by.
MOST_LEFT = 0.4
# One of compute and memory at the ceilings has to be so many times the other: kernels of either
# kind may be as far below.
CLEARLY = 2.0
# Roofs of a smaller part of the processor time say nothing of what takes the rest.
LEAST_AT_ROOF = 0.1
# A thread that waits for others spins, which counts as processor time: of several threads the
# steps with least of it are taken.
CALM_QUANTILE = 0.1


def provisional_of(
    result: CpuAttribution, ran_ns: Sequence[int], faults_ns: float, threads: int | None
) -> Provisional | None:
    """The regime that counts and processor time tell; ``None`` where they do not.

    Args:
        result: the attributed profiled steps.
        ran_ns: processor time of the step's thread in each timed step.
        faults_ns: what the page faults of a step cost.
        threads: of torch's operators.
    """
    if not ran_ns or not result.steps:
        return None
    thread_ns = float(np.quantile(ran_ns, 0.5 if threads == 1 else CALM_QUANTILE))
    kernels_ns = _least_kernels_ns(result.steps)
    overhead_ns = _least_overhead_ns(result.steps)
    if thread_ns <= 0:
        return None
    shares = result.attribution.kernels

    def at_roof_ns(*regimes: int) -> float:
        return float(np.nansum(shares.full_roof_ns[np.isin(shares.regime, regimes)]))

    compute_ns = at_roof_ns(COMPUTE_MATRIX, COMPUTE_VECTOR)
    memory_ns = at_roof_ns(MEMORY) + faults_ns
    by_overhead = kernels_ns < MOST_LEFT * thread_ns and kernels_ns < overhead_ns
    by_kernels = overhead_ns < MOST_LEFT * thread_ns and overhead_ns < kernels_ns
    if by_overhead == by_kernels:
        return None
    if by_overhead:
        regime = "overhead"
    else:
        least, most = sorted((compute_ns, memory_ns))
        if most < CLEARLY * least or most < LEAST_AT_ROOF * thread_ns:
            return None
        regime = "compute" if compute_ns == most else "memory"
    return Provisional(
        regime, thread_ns * 1e-9, (kernels_ns if by_overhead else overhead_ns) * 1e-9,
        compute_ns * 1e-9, memory_ns * 1e-9,
    )  # fmt: skip


def _least_kernels_ns(steps: Sequence[StepPieces]) -> float:
    """Of each op the shortest of its times in the profiled steps, all together."""
    times = np.array([step.kernel_ns for step in steps])
    # An op that no step ran has none.
    ran = times[:, ~np.isnan(times).all(axis=0)] if times.size else times
    others = {name for step in steps for name in step.other_ns}
    least = [min(s.other_ns[name] for s in steps if name in s.other_ns) for name in others]
    return (float(np.nanmin(ran, axis=0).sum()) if ran.size else 0.0) + sum(least)


def _least_overhead_ns(steps: Sequence[StepPieces]) -> float:
    """The same of what stands before each op, without what the profiler costs."""
    host = np.array([step.host_ns for step in steps])
    cost = np.array([step.cost_ns for step in steps])
    host[:, KERNEL] = 0.0
    cost_ns = float(np.median(cost.sum(axis=1)))
    return max(0.0, float(host.min(axis=0).sum()) - cost_ns)
