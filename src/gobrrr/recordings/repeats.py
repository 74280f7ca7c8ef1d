"""Kernels launched before the recording began: which later kernels they repeat.

A profiler that starts while the device still works on the step before records that step's last
kernels without their launches. Where the steps are alike, the recorded step holds the same kernels
again, with theirs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gobrrr.timeline.data import Kernels

Int64 = NDArray[np.int64]

# Fewer kernels than this, or fewer that follow, prove nothing.
LEAST_KERNELS = 4
FOLLOWING = 64


def repeated_by(kernels: Kernels) -> Int64:
    """For each kernel without a launch at the trace's begin: the later kernel that is its twin.

    -1 for all others. The whole run of names must come again with launches, and so must what
    follows the run (or the trace ends there): the end of a step is then matched with the end of a
    step, and a layer with the same layer.
    """
    count = len(kernels)
    twin = np.full(count, -1, np.int64)
    linked = np.flatnonzero(kernels.launch >= 0)
    length = int(linked[0]) if len(linked) else 0
    if length < LEAST_KERNELS:
        return twin
    names = kernels.name
    run = names[:length]
    starts = np.flatnonzero(names[length : count - length + 1] == run[0]) + length
    for start in starts.tolist():
        stop = start + length
        if not np.array_equal(names[start:stop], run):
            continue
        if (kernels.launch[start:stop] < 0).any():
            continue
        after = min(FOLLOWING, count - stop)
        if np.array_equal(names[stop : stop + after], names[length : length + after]):
            twin[:length] = np.arange(start, stop)
            break
    return twin
