"""A trace without device work, seen as CPU work: its operators take the kernels' place.

On a CPU an operator does its work in the calling thread. So the operators that do work become
kernels of one stream, and the rules for devices give the rest: between them the step's thread is in
an operator's dispatch, in Python, in the data loader, ...
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.device_work import WorkOf, usable_work
from gobrrr.timeline.data import HostKind, KernelKind, Kernels, Phase, Timeline
from gobrrr.timeline.intervals import distinct
from gobrrr.timeline.nesting import parents
from gobrrr.timeline.ops import OpCall

Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

# Leaf operators of these namespaces do no work of their own.
_BOOKKEEPING = frozenset(
    ("autograd", "torch", "profiler", "record_function", "nccl", "c10d", "cuda")
)
NO_WORK, UNKNOWN, WORK = range(3)
NOTICE = (
    "No GPU work in this trace: its operators are diagnosed as CPU work. Their fixed cost is not "
    "in a trace and counts with their kernels; gobrrr run measures it."
)


def with_operators_as_kernels(timeline: Timeline, work_of: WorkOf) -> Timeline:
    """The timeline with ``kernels`` made of the operators of the step's thread that do work.

    An operator does work if a formula says so and no operator inside it does; a leaf operator of a
    framework's namespace without a formula counts too, because nobody knows. Operators of
    autograd's threads count while the step waits for them; those of other threads do not.
    The result's ``device.kind`` is ``cpu``.
    """
    host = timeline.host
    parent = parents(host.start_ns, host.end_ns, host.thread)
    is_op = host.kind == HostKind.OP
    on_lane = (host.thread == timeline.step_thread) | _backward_threads(timeline)[host.thread]
    state = np.array([*(_state(call, work_of) for call in timeline.calls), NO_WORK], np.int8)
    works = is_op & on_lane & (state[host.call] == WORK)
    unknown = is_op & on_lane & (state[host.call] == UNKNOWN) & ~_encloses(parent, is_op)
    works |= unknown
    works &= ~_encloses(parent, works)
    rows = np.flatnonzero(works)
    count = len(rows)
    kernels = Kernels(
        start_ns=host.start_ns[rows],
        end_ns=host.end_ns[rows],
        stream=host.thread[rows],
        kind=np.full(count, KernelKind.KERNEL, np.uint8),
        name=host.name[rows],
        op=rows.astype(np.int64),
        launch=np.full(count, -1, np.int64),
        bytes_moved=np.full(count, -1, np.int64),
        collective=np.full(count, -1, np.int64),
        twin=np.full(count, -1, np.int64),
    )
    return replace(timeline, kernels=kernels, notices=(*timeline.notices, NOTICE))


def _state(call: OpCall, work_of: WorkOf) -> int:
    if usable_work(call, work_of) is not None:
        return WORK
    known = work_of(call)
    if known is not None and known.flops == 0 and known.bytes_moved == 0:
        return NO_WORK
    namespace, separator, _ = call.name.partition("::")
    plain = separator and namespace not in _BOOKKEEPING and " " not in namespace
    return UNKNOWN if plain else NO_WORK


def _encloses(parent: Int64, inner: Bool) -> Bool:
    """Whether a span has one of ``inner`` anywhere inside it."""
    found = np.zeros(len(parent), bool)
    rows = distinct(parent[inner & (parent >= 0)])
    while len(rows):
        rows = rows[~found[rows]]
        found[rows] = True
        rows = distinct(parent[rows])
        rows = rows[rows >= 0]
    return found


def _backward_threads(timeline: Timeline) -> Bool:
    """Threads that run nothing but backward."""
    host = timeline.host
    count = int(host.thread.max()) + 1 if len(host) else 1
    is_op = host.kind == HostKind.OP
    total = np.bincount(host.thread[is_op], minlength=count)
    own = np.bincount(host.thread[is_op & (host.phase == Phase.BACKWARD)], minlength=count)
    result: Bool = (total > 0) & (own == total)
    return result
