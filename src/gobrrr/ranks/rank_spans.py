"""When one rank of a job worked on what: a few stretches to draw, or every span for a trace.

Times are on the clock that the process shares with others, in integer nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.cpu.attribute import CpuAttribution
from gobrrr.live.profiles.cpu_timeline import CpuCapture
from gobrrr.timeline.data import (
    PHASE_NAMES,
    HostKind,
    HostSpans,
    Int64,
    KernelKind,
    Kernels,
    Phase,
    Timeline,
    UInt8,
)

# (what, start, end), and the same with a thread.
Stretch = tuple[str, int, int]
Span = tuple[str, int, int, int]

# Streams of a device as threads of a process, after those of its host.
STREAMS = 2_000_000
# Steps of which a trace of the job holds every span.
_STEPS_DRAWN = 7
# Rests shorter than this share of the step are no holes in a stretch, and stretches shorter than
# the other are none: neither is a line wide where a step is as wide as a screen.
_SHORTEST_REST, _SHORTEST_WORK = 0.02, 0.001


def stretches_of_lane(
    capture: CpuCapture, result: CpuAttribution, shift_ns: Int64
) -> list[Stretch]:
    """When the lane of a processor ran kernels of which phase; ``shift_ns`` is added, by step."""
    host = capture.timeline.host
    rows = [pieces.kernel_row for pieces in result.steps]
    row = np.concatenate(rows) if rows else np.empty(0, np.int64)
    return _stretches(
        host.start_ns[row], host.end_ns[row], host.phase[row], capture.timeline.steps, shift_ns
    )


def stretches_of_device(timeline: Timeline) -> list[Stretch]:
    """When a device ran kernels of which phase, on any stream; collectives are not among them."""
    kernels = timeline.kernels
    row = np.flatnonzero(kernels.kind != KernelKind.COLLECTIVE)
    phase = phase_of_kernels(timeline)[row]
    shift = np.full(len(timeline.steps), timeline.base_ns or 0, np.int64)
    return _stretches(kernels.start_ns[row], kernels.end_ns[row], phase, timeline.steps, shift)


def phase_of_kernels(timeline: Timeline) -> UInt8:
    """The phase of each kernel of a device, that of its op."""
    # The last stands for kernels whose op is not known.
    return np.append(timeline.host.phase, np.uint8(Phase.OTHER))[timeline.kernels.op]


def _stretches(
    start: Int64, end: Int64, phase: UInt8, steps: Int64, shift_ns: Int64
) -> list[Stretch]:
    """Work of one phase as one stretch, up to a rest that is long enough to be seen.

    What is of no phase has stretches of its own, which may lie over the others.
    """
    order = np.argsort(start, kind="stable")
    start, end, phase = start[order], end[order], phase[order]
    found: list[Stretch] = []
    for (low, high), moved in zip(steps.tolist(), shift_ns.tolist()):
        first, last = np.searchsorted(start, (low, high)).tolist()
        begun, until, of = start[first:last], end[first:last], phase[first:last]
        told = of != Phase.OTHER
        rest_ns = _SHORTEST_REST * (high - low)
        runs = [*_runs(begun[told], until[told], of[told], rest_ns)]
        runs += [run for run in _runs(begun, until, of, rest_ns) if run[2] == Phase.OTHER]
        found += [
            (PHASE_NAMES[Phase(which)], a + moved, min(b, high) + moved)
            for a, b, which in sorted(runs)
            if min(b, high) - a >= _SHORTEST_WORK * (high - low)
        ]
    return found


def _runs(start: Int64, end: Int64, phase: UInt8, rest_ns: float) -> Iterator[tuple[int, int, int]]:
    """(start, end, phase) of rows that follow each other, by start, in one phase."""
    if not len(start):
        return
    reached = np.maximum.accumulate(end)
    new = (phase[1:] != phase[:-1]) | (start[1:] - reached[:-1] > rest_ns)
    first = np.append(0, np.flatnonzero(new) + 1)
    ends = np.maximum.reduceat(end, first)
    yield from zip(start[first].tolist(), ends.tolist(), phase[first].tolist())


def spans_of_lane(capture: CpuCapture) -> list[Span]:
    """What the threads of a process did in its first profiled steps, by the clock of the host."""
    timeline = capture.timeline
    host, steps = timeline.host, timeline.steps[:_STEPS_DRAWN]
    if not len(steps):
        return []
    rows = np.flatnonzero(host.start_ns < steps[-1, 1])
    window = np.searchsorted(steps[:, 1], host.start_ns[rows], side="right")
    shift = (capture.begin_ns[: len(steps)] - steps[:, 0])[window]
    columns = (host.start_ns[rows] + shift, host.end_ns[rows] + shift, host.thread[rows])
    names = [timeline.names[index] for index in host.name[rows].tolist()]
    return list(zip(names, *(column.tolist() for column in columns)))


def spans_of_device(timeline: Timeline) -> list[Span]:
    """What host and streams of a process did in its first steps, collectives apart.

    Without the frames of Python, which are most of a recording. The thread of the loop is 0.
    """
    steps = timeline.steps[:_STEPS_DRAWN]
    if not len(steps):
        return []
    low, high = int(steps[0, 0]), int(steps[-1, 1])
    host, kernels, shift = timeline.host, timeline.kernels, timeline.base_ns or 0
    others = np.unique(host.thread[host.thread != timeline.step_thread])
    number = np.where(
        host.thread == timeline.step_thread, 0, np.searchsorted(others, host.thread) + 1
    )
    lanes: tuple[tuple[HostSpans | Kernels, NDArray[Any], NDArray[np.bool_]], ...] = (
        (host, number, host.kind != HostKind.PYTHON),
        (kernels, kernels.stream + STREAMS, kernels.kind != KernelKind.COLLECTIVE),
    )
    found: list[Span] = []
    for spans, thread, drawn in lanes:
        row = np.flatnonzero(drawn & (spans.start_ns < high) & (spans.end_ns > low))
        columns = (spans.start_ns[row] + shift, spans.end_ns[row] + shift, thread[row])
        names = [timeline.names[index] for index in spans.name[row].tolist()]
        found += zip(names, *(column.tolist() for column in columns))
    return found
