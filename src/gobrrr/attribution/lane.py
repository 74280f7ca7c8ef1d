"""The lane of a CPU step: the thread that runs it, cut into kernels, dispatch and Python.

On a CPU an op runs in the calling thread. Its event is dispatch (its fixed cost) plus kernel (the
rest); time in events that hold no work is dispatch; time outside events is Python, unless a range
says data loading, compilation, garbage collection or waiting for other ranks. A run, a trace and a
prediction are cut alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gobrrr.timeline.align import recorded_as
from gobrrr.timeline.data import HostKind, HostSpans, Int64, Phase, Timeline
from gobrrr.timeline.intervals import Pieces, ownership
from gobrrr.timeline.nesting import depths, inherited_minimum, nearest, parents

if TYPE_CHECKING:
    # For its type alone: a trace of a GPU has no use for what records a processor.
    from gobrrr.live.profiles.cpu_timeline import CpuCapture
    from gobrrr.live.profiles.profile import ProfilerCost

Bool = NDArray[np.bool_]
Float64 = NDArray[np.float64]

# Who owns an instant of the lane, strongest first.
KERNEL, COLLECTING, LOADING, COMPILING, NETWORK, DISPATCH, PYTHON = range(7)
LEAF_OF_OWNER = {
    COLLECTING: "overhead.garbage_collection",
    LOADING: "overhead.data_loading",
    COMPILING: "overhead.compilation",
    NETWORK: "memory.network",
    DISPATCH: "overhead.dispatch",
    PYTHON: "overhead.python",
}
_OWNER_OF_KIND = {
    HostKind.GARBAGE_COLLECTION: COLLECTING,
    HostKind.DATA_LOADING: LOADING,
    HostKind.COMPILATION: COMPILING,
    HostKind.NETWORK: NETWORK,
    HostKind.OP: DISPATCH,
}
# Deeper than any stack: what an autograd thread does goes before the frame that waits for it.
_BESIDE = 1 << 20


@dataclass(frozen=True)
class StepPieces:
    """One step of the lane: kernel time per op, and the rest by owner.

    ``kernel_ns[p]``: time of op p of the capture (NaN: not in this step), ``calls[p]`` how often
    it ran; ``other_ns``: kernels that match no op, by name, and ``other_count`` how many there
    were. ``kernel_row`` are the host rows of all kernels, ``kernel_row_ns`` the time of each.
    ``host_ns[o, p]``: time of owner o (``COLLECTING`` to ``PYTHON``) spent on the way to op p; the
    last column is after the last op. ``cost_ns[o]``: the profiler's cost in each owner's time.
    ``piece_*`` are the stretches of time themselves, from the window's start, with owner, the op
    that they lead to and the host row that they are part of (-1: none).
    """

    kernel_ns: Float64
    calls: Int64
    other_ns: dict[str, float]
    other_count: dict[str, int]
    kernel_row: Int64
    kernel_row_ns: Float64
    host_ns: Float64
    cost_ns: Float64
    piece_owner: Int64
    piece_leads_to: Int64
    piece_row: Int64
    piece_start_ns: Int64
    piece_end_ns: Int64


def is_generated_kernel(name: str) -> bool:
    """Whether an event is a CPU kernel that Inductor generated (``graph_0_cpp_fused_x``)."""
    return "cpp_fused_" in name


def names_of_work(capture: CpuCapture, has_work: Bool) -> set[str]:
    """Names of recorded ops that have a kernel, in-place forms under the name they go by."""
    return {recorded_as(capture.recorded[i].call.name) for i in np.flatnonzero(has_work).tolist()}


def lane_threads(timeline: Timeline) -> Bool:
    """Which threads make up the lane: the step's, and those that run nothing but its backward."""
    host = timeline.host
    count = max(int(host.thread.max()) if len(host) else 0, timeline.step_thread) + 1
    is_op = host.kind == HostKind.OP
    total = np.bincount(host.thread[is_op], minlength=count)
    own = np.bincount(host.thread[is_op & (host.phase == Phase.BACKWARD)], minlength=count)
    found: Bool = (total > 0) & (own == total)
    found[timeline.step_thread] = True
    return found


def cut_step(
    capture: CpuCapture, window: tuple[int, int], has_work: Bool, cost: ProfilerCost
) -> StepPieces:
    """Gives each instant of one window to its owner (precedence: see the constants).

    Of Python frames and ops inside each other the innermost owns: a frame inside an op (of a
    custom op, of an autograd function) is Python.
    """
    host = capture.timeline.host
    low, high = window
    rows = _rows_in(capture.timeline, low, high)
    start = np.maximum(host.start_ns[rows], low) - low
    end = np.minimum(host.end_ns[rows], high) - low
    kind, position = host.kind[rows], capture.position[rows]
    parent = parents(start, end, host.thread[rows])
    used, named = np.unique(host.name[rows], return_inverse=True)
    names = [capture.timeline.names[index] for index in used.tolist()]
    generated = np.array([is_generated_kernel(name) for name in names], bool)
    works = np.append(has_work, False)[position]  # -1, the last: no op of the capture
    is_kernel = ((kind == HostKind.OP) & works) | generated[named.reshape(-1)]
    if capture.unmatched.any():
        # Of the same name as ops that work: what else they are is not known.
        working = names_of_work(capture, has_work)
        alike = np.array([recorded_as(name) in working for name in names], bool)
        is_kernel |= capture.unmatched[rows] & alike[named.reshape(-1)]
    enclosing = nearest(parent, is_kernel)
    inside = (enclosing >= 0) & (enclosing != np.arange(len(rows)))
    is_kernel &= ~inside

    # The whole step is Python's where nobody else's; that span is the last row.
    owner = np.full(len(rows) + 1, PYTHON, np.int64)
    for of_kind, value in _OWNER_OF_KIND.items():
        owner[:-1][kind == of_kind] = value
    owner[:-1][is_kernel] = KERNEL
    is_frame = kind == HostKind.PYTHON
    keep = np.append(~inside & ((owner[:-1] != PYTHON) | is_frame), True)
    rank = _ranks(host, rows, owner, parent, capture.timeline.step_thread, is_frame.any())
    pieces = ownership(np.append(start, 0)[keep], np.append(end, high - low)[keep], rank[keep])
    span = np.flatnonzero(keep)[pieces.row]
    length = (pieces.end - pieces.start).astype(np.float64)
    owned = np.asarray(np.bincount(span, weights=length, minlength=len(rows) + 1), np.float64)

    # Kernel time, without what recording it cost.
    kernel_rows = np.flatnonzero(is_kernel)
    nested = np.bincount(enclosing[inside], minlength=len(rows))[kernel_rows]
    time: Float64 = owned[kernel_rows].astype(np.float64) - cost.inside_ns
    time = np.maximum(time - nested * (cost.inside_ns + cost.outside_ns), 0.0)
    slot, known = position[kernel_rows], position[kernel_rows] >= 0
    count = len(capture.recorded)
    began = position[(position >= 0) & ~inside & (host.start_ns[rows] >= low)]
    seen = np.bincount(slot[known], minlength=count)
    kernel_ns = np.bincount(slot[known], weights=time[known], minlength=count)
    other: dict[str, float] = {}
    counts: dict[str, int] = {}
    for row, time_ns in zip(kernel_rows[~known], time[~known]):
        name = names[named[row]]
        other[name] = other.get(name, 0.0) + float(time_ns)
        counts[name] = counts.get(name, 0) + 1

    leads_to = _leads_to(start, position, pieces, count)
    host_ns = np.zeros((PYTHON + 1, count + 1))
    np.add.at(host_ns, (owner[span], leads_to), length)
    return StepPieces(
        kernel_ns=np.where(seen > 0, kernel_ns, np.nan),
        calls=np.bincount(began, minlength=count),
        other_ns=other,
        other_count=counts,
        kernel_row=rows[kernel_rows],
        kernel_row_ns=time,
        host_ns=host_ns,
        cost_ns=_profiler_cost(owner[:-1], kind, parent, inside, is_kernel, cost),
        piece_owner=owner[span],
        piece_leads_to=leads_to,
        piece_row=np.append(rows, -1)[span],
        piece_start_ns=pieces.start,
        piece_end_ns=pieces.end,
    )


def _rows_in(timeline: Timeline, low: int, high: int) -> Int64:
    """Host rows of the lane that overlap a window."""
    host = timeline.host
    stop = int(np.searchsorted(host.start_ns, high))
    rows = np.flatnonzero(host.end_ns[:stop] > low)
    chosen: Int64 = rows[lane_threads(timeline)[host.thread[rows]]]
    return chosen


def _ranks(
    host: HostSpans, rows: Int64, owner: Int64, parent: Int64, step_thread: int, frames: bool
) -> Int64:
    """Which span wins an instant: by owner; of ops and Python frames the innermost."""
    if not frames:
        return owner
    depth = depths(parent) + _BESIDE * (host.thread[rows] != step_thread)
    rank = owner.copy()
    nests = owner[:-1] >= DISPATCH
    # The step itself, the last row, comes after all of them.
    rank[:-1][nests] = DISPATCH + (depth.max() - depth)[nests]
    rank[-1] = DISPATCH + depth.max() + 1
    # Levels close together: ownership takes them one by one.
    return np.unique(rank, return_inverse=True)[1].reshape(-1)


def _leads_to(start: Int64, position: Int64, pieces: Pieces, count: int) -> Int64:
    """The op that each piece of time leads to: the next to start (``count``: none does)."""
    marks = np.flatnonzero(position >= 0)
    ahead = np.searchsorted(start[marks], pieces.start)
    found: Int64 = np.append(position[marks], count)[ahead]
    return found


def _profiler_cost(
    owner: Int64, kind: NDArray[np.uint8], parent: Int64, inside: Bool, is_kernel: Bool,
    cost: ProfilerCost,
) -> Float64:  # fmt: skip
    """What recording cost each owner: inside a span it is the span's, outside it the parent's."""
    region = np.where(owner == KERNEL, DISPATCH, owner)
    strongest = np.asarray(inherited_minimum(parent, region), np.int64)
    cost_ns = np.zeros(PYTHON + 1)
    visible = ~inside & (kind != HostKind.GARBAGE_COLLECTION)
    np.add.at(cost_ns, strongest[visible & ~is_kernel], cost.inside_ns)
    parents_region = np.where(parent >= 0, strongest[np.maximum(parent, 0)], PYTHON)
    np.add.at(cost_ns, parents_region[visible], cost.outside_ns)
    return cost_ns
