"""One step as columns that a report can draw."""

from __future__ import annotations

from typing import Any

import numpy as np

from gobrrr.attribution.attributed import DrawnStep
from gobrrr.attribution.leaves import MOVES, REGIME_NAMES
from gobrrr.diagnosis.schema import TimelineColumns

# What a report can draw smoothly; a longer step keeps its longest spans.
MOST_DRAWN = 200_000


def timeline_columns(drawn: DrawnStep) -> TimelineColumns:
    """The spans of the step, cut to it, in ns from its start."""
    low, high = drawn.window
    host, kernels = drawn.host, drawn.kernels
    rows = np.flatnonzero((host.start_ns < high) & (host.end_ns > low))
    if len(rows) > MOST_DRAWN:
        longest = np.argsort(-(host.end_ns - host.start_ns)[rows], kind="stable")[:MOST_DRAWN]
        rows = np.sort(rows[longest])
    work = np.flatnonzero((kernels.start_ns < high) & (kernels.end_ns > low))
    idle = np.flatnonzero((drawn.idle_start_ns < high) & (drawn.idle_end_ns > low))
    used, inverse = np.unique(
        np.concatenate([host.name[rows], kernels.name[work]]), return_inverse=True
    )

    def clipped(start: Any, end: Any) -> tuple[list[int], list[int]]:
        begin = np.maximum(start, low)
        return (begin - low).tolist(), np.maximum(np.minimum(end, high) - begin, 0).tolist()

    host_start, host_duration = clipped(host.start_ns[rows], host.end_ns[rows])
    kernel_start, kernel_duration = clipped(kernels.start_ns[work], kernels.end_ns[work])
    idle_start, idle_duration = clipped(drawn.idle_start_ns[idle], drawn.idle_end_ns[idle])
    return TimelineColumns(
        names=[drawn.names[index] for index in used],
        host_start_ns=host_start,
        host_duration_ns=host_duration,
        host_thread=host.thread[rows].tolist(),
        host_kind=host.kind[rows].tolist(),
        host_name=inverse[: len(rows)].tolist(),
        kernel_start_ns=kernel_start,
        kernel_duration_ns=kernel_duration,
        kernel_stream=kernels.stream[work].tolist(),
        kernel_name=inverse[len(rows) :].tolist(),
        kernel_regime=[MOVES.get(r, REGIME_NAMES[r]) for r in drawn.regime[work].tolist()],
        idle_start_ns=idle_start,
        idle_duration_ns=idle_duration,
        idle_cause=[drawn.idle_leaf[i].removeprefix("overhead.") for i in idle.tolist()],
    )
