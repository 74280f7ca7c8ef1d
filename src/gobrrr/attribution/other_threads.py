"""What runs beside the lane of the step: prefetchers, loaders, loggers; other devices."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from gobrrr.attribution.lane import lane_threads
from gobrrr.timeline.data import HostKind, Timeline
from gobrrr.timeline.nesting import parents

MOST_LISTED = 20


@dataclass(frozen=True, slots=True)
class ConcurrentOp:
    """One operator on one other thread, or kernel on another device, in ns per step.

    What an operator calls is part of it.
    """

    thread: str
    name: str
    duration_ns: float


def concurrent_ops(timeline: Timeline) -> tuple[ConcurrentOp, ...]:
    """Outermost operators of threads that are not the step's, the longest first.

    Of spans that reach beyond the steps the part within them counts. Threads of the autograd
    engine, for which the step waits, belong to the lane and are not among them.
    """
    host, steps = timeline.host, timeline.steps
    if not len(host) or not len(steps):
        return ()
    is_op = host.kind == HostKind.OP
    outermost = is_op & ~lane_threads(timeline)[host.thread]
    parent = parents(host.start_ns[is_op], host.end_ns[is_op], host.thread[is_op])
    outermost[np.flatnonzero(is_op)[parent >= 0]] = False
    found: Counter[tuple[int, int]] = Counter()
    for row in np.flatnonzero(outermost).tolist():
        begin = np.maximum(host.start_ns[row], steps[:, 0])
        within = np.maximum(np.minimum(host.end_ns[row], steps[:, 1]) - begin, 0).sum()
        if within:
            found[int(host.thread[row]), int(host.name[row])] += int(within)
    return tuple(
        ConcurrentOp(f"thread {thread}", timeline.names[name], duration_ns / len(steps))
        for (thread, name), duration_ns in found.most_common(MOST_LISTED)
    )


def work_on_others(timeline: Timeline) -> tuple[ConcurrentOp, ...]:
    """Kernels on the other devices of the process, each device's longest first.

    Of all that ran there between the first and the last of the steps; streams are added up.
    """
    found = []
    low, high = int(timeline.steps[0, 0]), int(timeline.steps[-1, 1])
    steps = len(timeline.steps)
    for other in timeline.others:
        within = np.maximum(np.minimum(other.end_ns, high) - np.maximum(other.start_ns, low), 0)
        total = np.bincount(other.name, weights=within.astype(np.float64))
        longest = np.argsort(-total, kind="stable")[:MOST_LISTED]
        found += [
            ConcurrentOp(other.device.label, timeline.names[name], float(total[name]) / steps)
            for name in longest.tolist()
            if total[name] > 0
        ]
    return tuple(found)
