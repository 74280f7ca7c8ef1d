"""Why a device was idle: each gap by what the thread that ended it was doing meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.leaves import IdleGap
from gobrrr.timeline import intervals
from gobrrr.timeline.data import HostKind, Timeline, names_that
from gobrrr.timeline.intervals import IntervalSet, distinct
from gobrrr.timeline.nesting import inherited_minimum, innermost_segments, nearest

Int64 = NDArray[np.int64]
UInt8 = NDArray[np.uint8]

# Causes, the strongest first: a span counts as the strongest cause among itself and what encloses
# it (an operator that the data loader calls is data loading).
(LAUNCH, SYNCHRONISATION, ALLOCATION, DATA_LOADING, GARBAGE_COLLECTION, COMPILATION, DISPATCH,
 PYTHON, UNEXPLAINED, KERNEL_GAP) = range(10)  # fmt: skip
CAUSE_LEAVES: tuple[str, ...] = (
    "overhead.launch", "overhead.synchronisation", "overhead.allocation", "overhead.data_loading",
    "overhead.garbage_collection", "overhead.compilation", "overhead.dispatch", "overhead.python",
    "overhead.unexplained", "overhead.kernel_gap",
)  # fmt: skip
# Kernels that were long queued follow each other after 1.0 to 2.1 us on an H200 and about 1.3 on an
# H100, and nodes of a graph after 0.1 at most (``heat`` of
# benchmarks/results/gpu_device_nvidia-h200_2026-11-27.json): no launch is waited for. A gap of more
# is none of these.
MOST_BETWEEN_KERNELS_NS = 10_000
# From the return of a launch call to the start of its kernel on an idle device.
_LAUNCH_LATENCY_NS = 3_000
_CAUSE_OF_KIND = {
    HostKind.LAUNCH: LAUNCH,
    HostKind.SYNCHRONISE: SYNCHRONISATION,
    HostKind.ALLOCATE: ALLOCATION,
    HostKind.DATA_LOADING: DATA_LOADING,
    HostKind.GARBAGE_COLLECTION: GARBAGE_COLLECTION,
    HostKind.COMPILATION: COMPILATION,
}


@dataclass(frozen=True)
class IdlePieces:
    """Idle time in pieces that tile it, sorted by start.

    ``cause`` indexes ``CAUSE_LEAVES``; ``kernel`` is the kernel that ended the gap (-1: none);
    ``span`` is the innermost host span at the time (-1: none; after the launch call: the call).
    """

    start_ns: Int64
    end_ns: Int64
    cause: UInt8
    kernel: Int64
    span: Int64

    def __len__(self) -> int:
        return len(self.start_ns)

    def take(self, rows: NDArray[Any]) -> IdlePieces:
        """Some of them, by number or by mask."""
        return IdlePieces(*(getattr(self, column.name)[rows] for column in fields(self)))


def span_causes(timeline: Timeline, parent: Int64) -> UInt8:
    """The cause that each host span stands for.

    A Python frame inside an operator (a custom operator, an autograd function) is Python: the
    nearer of the two decides.
    """
    host = timeline.host
    own = np.full(len(host), UNEXPLAINED, np.uint8)
    for kind, cause in _CAUSE_OF_KIND.items():
        own[host.kind == kind] = cause
    strongest = inherited_minimum(parent, own).astype(np.uint8)
    is_op, is_python = host.kind == HostKind.OP, host.kind == HostKind.PYTHON
    near = nearest(parent, is_op | is_python)
    base = np.full(len(host), PYTHON, np.uint8)
    if len(near):
        base[(near >= 0) & is_op[near]] = DISPATCH
    return np.minimum(strongest, base)


def find_idle(timeline: Timeline, busy: IntervalSet, parent: Int64) -> IdlePieces:
    """All time inside the step windows that ``busy`` leaves free, with its causes.

    A gap ends with a kernel K. From the return of K's launch call to K's start: launch; but where K
    was queued before the gap began, by more than a launch takes, the device's own gap between
    kernels, or unexplained if it is longer than those are. Before that: what the launching thread
    was doing, instant by instant; where that thread (autograd's) was not yet at work, what the
    step's thread was doing. Without K or its launch: the step's thread. Outside the span of what
    was recorded of a thread: unexplained.
    """
    host, kernels = timeline.host, timeline.kernels
    low, high = int(timeline.steps[0, 0]), int(timeline.steps[-1, 1])
    gaps = intervals.complement(busy, low, high)
    count = len(gaps.start)
    kernel = np.searchsorted(kernels.start_ns, gaps.end, side="left")
    exists = kernel < len(kernels)
    exists[exists] = kernels.start_ns[kernel[exists]] == gaps.end[exists]
    kernel = np.where(exists, kernel, -1).astype(np.int64)
    launch = np.where(exists, kernels.launch[kernel] if len(kernels) else -1, -1)
    has_launch = launch >= 0
    returned = np.where(has_launch, host.end_ns[launch] if len(host) else 0, gaps.end)
    split = np.clip(returned, gaps.start, gaps.end)

    waits = np.flatnonzero(split < gaps.end)
    long_queued = returned[waits] <= gaps.start[waits] - _LAUNCH_LATENCY_NS
    brief = gaps.end[waits] - gaps.start[waits] <= MOST_BETWEEN_KERNELS_NS
    cause = np.where(long_queued, np.where(brief, KERNEL_GAP, UNEXPLAINED), LAUNCH)
    parts = [
        IdlePieces(
            split[waits], gaps.end[waits], cause.astype(np.uint8), kernel[waits], launch[waits]
        )
    ]
    if len(host) == 0:
        nothing = np.full(count, -1, np.int64)
        causes = np.full(count, UNEXPLAINED, np.uint8)
        parts.append(IdlePieces(gaps.start, split, causes, kernel, nothing))
        return _joined(parts)
    lanes = _Lanes(timeline, parent)
    thread = np.where(has_launch, host.thread[launch], timeline.step_thread)
    for lane in distinct(thread).tolist():
        rows = np.flatnonzero((thread == lane) & (split > gaps.start))
        parts.append(lanes.causes(lane, gaps.start[rows], split[rows], kernel[rows]))
    return _joined(parts)


class _Lanes:
    """Per thread, computed once: the innermost span and its cause at every instant."""

    def __init__(self, timeline: Timeline, parent: Int64) -> None:
        self._timeline = timeline
        self._parent = parent
        self._cause = span_causes(timeline, parent)
        self._known: dict[int, tuple[Int64, Int64]] = {}

    def _segments(self, lane: int) -> tuple[Int64, Int64]:
        found = self._known.get(lane)
        if found is None:
            host = self._timeline.host
            rows = np.flatnonzero(host.thread == lane)
            local = np.full(len(host) + 1, -1, np.int64)
            local[rows] = np.arange(len(rows))
            # Row -1 (no parent) reads the last entry, -1.
            time, span = innermost_segments(
                host.start_ns[rows], host.end_ns[rows], local[self._parent[rows]]
            )
            found = time, np.append(rows, -1)[span]
            self._known[lane] = found
        return found

    def causes(self, lane: int, start: Int64, end: Int64, kernel: Int64) -> IdlePieces:
        """Cuts intervals at the borders of a thread's spans and names the cause of each piece."""
        time, span = self._segments(lane)
        step_thread = self._timeline.step_thread
        if len(time) == 0:
            if lane != step_thread:
                return self.causes(step_thread, start, end, kernel)
            nothing = np.full(len(start), -1, np.int64)
            return IdlePieces(
                start, end, np.full(len(start), UNEXPLAINED, np.uint8), kernel, nothing
            )
        # Segments tile all time, with one before the first span and one after the last.
        far = np.iinfo(np.int64).max
        borders = IntervalSet(
            np.concatenate(([-far], time)), np.concatenate((time, [far])).astype(np.int64)
        )
        pieces = intervals.intersect_rows(start, end, borders)
        at = np.searchsorted(time, pieces.start, side="right") - 1
        inner = np.where(at >= 0, span[np.maximum(at, 0)], -1)
        outside = (at < 0) | (at == len(time) - 1)
        cause = np.where(inner >= 0, self._cause[inner], PYTHON).astype(np.uint8)
        cause[outside] = UNEXPLAINED
        result = IdlePieces(pieces.start, pieces.end, cause, kernel[pieces.row], inner)
        if lane == step_thread:
            return result
        idle = inner < 0
        if not idle.any():
            return result
        other = self.causes(
            step_thread, pieces.start[idle], pieces.end[idle], kernel[pieces.row][idle]
        )
        return _joined([result.take(~idle), other])


def _joined(parts: list[IdlePieces]) -> IdlePieces:
    columns = [
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("start_ns", "end_ns", "cause", "kernel", "span")
    ]
    keep = columns[1] > columns[0]
    order = np.flatnonzero(keep)
    order = order[np.argsort(columns[0][order], kind="stable")]
    return IdlePieces(*(column[order] for column in columns))


def behind_queued_ns(timeline: Timeline, pieces: IdlePieces) -> float:
    """Gaps longer than kernels' that a kernel ended which was long queued: all together."""
    kinds = np.append(timeline.host.kind, HostKind.PYTHON)
    rows = (pieces.cause == UNEXPLAINED) & (kinds[pieces.span] == HostKind.LAUNCH)
    return float((pieces.end_ns - pieces.start_ns)[rows].sum())


def _leads_to(timeline: Timeline, pieces: IdlePieces) -> NDArray[np.int64]:
    """The line of the op that the host came to next, for Python that has no line of its own.

    Only where no Python frames were recorded: there the lines are those of matched ops.
    """
    host = timeline.host
    rows = np.flatnonzero((host.kind == HostKind.OP) & (host.source >= 0))
    if not len(rows) or (host.kind == HostKind.PYTHON).any():
        return np.full(len(pieces), -1, np.int64)
    after = np.searchsorted(host.start_ns[rows], pieces.end_ns)
    found = np.where(after < len(rows), host.source[rows[np.minimum(after, len(rows) - 1)]], -1)
    return np.where(pieces.cause == PYTHON, found, -1).astype(np.int64)


def summarise_idle(
    timeline: Timeline,
    pieces: IdlePieces,
    steps: int,
    parent: Int64,
    kept: NDArray[np.float64] | float = 1.0,
) -> tuple[IdleGap, ...]:
    """Idle time by cause, line and call: mean ns per step, the longest first.

    ``kept`` is the share of each piece that counts.
    """
    host, names = timeline.host, timeline.names
    span = pieces.span
    if len(host):
        source = np.where(span >= 0, host.source[span], -1)
        source = np.where(source >= 0, source, _leads_to(timeline, pieces))
        op = nearest(parent, host.kind == HostKind.OP)
        around = np.where(span >= 0, np.where(op >= 0, host.name[op], -1)[span], -1)
        called = np.where(span >= 0, host.name[span], -1)
        fetch = _loader_ranges(timeline, parent)
        fetch = np.where(span >= 0, fetch[span], -1)
        loader = np.where(fetch >= 0, host.name[fetch], -1)
    else:
        source = around = called = loader = np.full(len(span), -1, np.int64)
    # Which call, only where the call is the cause; elsewhere every operator would be a row.
    blocked = np.isin(pieces.cause, (SYNCHRONISATION, ALLOCATION))
    loading = pieces.cause == DATA_LOADING
    called = np.where(blocked, called, np.where(loading, loader, -1))
    around = np.where(blocked, around, -1)
    # One number per combination: names are numbered, and -1 counts as one more.
    base = len(names) + 1
    key = ((pieces.cause.astype(np.int64) * base + source + 1) * base + called + 1) * base
    groups, first, inverse = np.unique(key + around + 1, return_index=True, return_inverse=True)
    length = (pieces.end_ns - pieces.start_ns).astype(np.float64) * kept
    total = np.bincount(inverse.reshape(-1), weights=length, minlength=len(groups)) / max(steps, 1)
    gaps = []
    for group in np.argsort(-total, kind="stable").tolist():
        row = int(first[group])
        cause, line = int(pieces.cause[row]), int(source[row])
        call, op_name = int(called[row]), int(around[row])
        detail = names[call] if call >= 0 else None
        if detail is not None and op_name >= 0 and op_name != call:
            detail = f"{detail} in {names[op_name]}"
        gaps.append(
            IdleGap(
                duration_ns=float(total[group]),
                leaf=CAUSE_LEAVES[cause],
                source=names[line] if line >= 0 else None,
                detail=detail,
            )
        )
    return tuple(gaps)


def _loader_ranges(timeline: Timeline, parent: Int64) -> Int64:
    """The data loader's span around each host span: the range it opens, else the outermost."""
    host = timeline.host
    loading = host.kind == HostKind.DATA_LOADING
    named = names_that(timeline.names, lambda name: name.startswith("enumerate("))
    opened = nearest(parent, loading & named[host.name])
    above = nearest(parent, loading)
    # A loader's span is outermost if none encloses its parent.
    outer = loading & np.where(parent >= 0, above[parent] < 0, True)
    return np.where(opened >= 0, opened, nearest(parent, outer))
