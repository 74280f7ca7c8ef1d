"""Whole-window figures of a device's streams, exact: unions of intervals in integer ns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gobrrr.timeline import intervals
from gobrrr.timeline.data import KernelKind, Kernels, Timeline


@dataclass(frozen=True)
class DeviceTimeNs:
    """What the device was doing between its first and its last event.

    ``compute_kernels_ns`` is the union of kernels that are not collectives; ``exposed`` means
    while nothing earlier in the order kernels, collectives, copies (those within the device and
    memsets included) ran. So
    compute kernels + exposed collectives + exposed copies = busy.
    """

    window_ns: int
    busy_ns: int
    compute_kernels_ns: int
    collectives_ns: int
    exposed_collectives_ns: int
    exposed_copies_ns: int

    @property
    def idle_ns(self) -> int:
        """Time in the window without any device work."""
        return self.window_ns - self.busy_ns


def device_time(timeline: Timeline) -> DeviceTimeNs | None:
    """The figures over the whole trace; ``None`` without device work.

    Every device event counts, linked to an op or not. Negative durations cover nothing.
    """
    kernels = timeline.kernels
    if len(kernels) == 0:
        return None
    compute = _union_of(kernels, (KernelKind.KERNEL,))
    collectives = _union_of(kernels, (KernelKind.COLLECTIVE,))
    copies = _union_of(kernels, (KernelKind.COPY, KernelKind.DEVICE_COPY, KernelKind.MEMSET))
    exposed_collectives = intervals.difference(collectives, compute)
    first_two = intervals.merge(compute, collectives)
    exposed_copies = intervals.difference(copies, first_two)
    # Steps that were left out between others are in no window.
    apart = int((timeline.steps[1:, 0] - timeline.steps[:-1, 1]).sum())
    return DeviceTimeNs(
        window_ns=int(kernels.end_ns.max() - kernels.start_ns.min()) - apart,
        busy_ns=intervals.merge(first_two, copies).total,
        compute_kernels_ns=compute.total,
        collectives_ns=collectives.total,
        exposed_collectives_ns=exposed_collectives.total,
        exposed_copies_ns=exposed_copies.total,
    )


def _union_of(kernels: Kernels, kinds: tuple[KernelKind, ...]) -> intervals.IntervalSet:
    rows = np.isin(kernels.kind, kinds)
    return intervals.union(kernels.start_ns[rows], kernels.end_ns[rows])
