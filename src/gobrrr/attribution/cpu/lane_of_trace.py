"""A trace without device work as the lane of a CPU step: its operators that do work are kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.device.groups import distinct_rows
from gobrrr.attribution.device.work import WorkOf, usable_work
from gobrrr.attribution.lane import is_generated_kernel, lane_threads
from gobrrr.live.profiles.cpu_timeline import CpuCapture
from gobrrr.timeline.data import HostKind, Phase, Timeline
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.intervals import distinct
from gobrrr.timeline.nesting import nearest
from gobrrr.timeline.ops import OpCall
from gobrrr.work import has_formula, is_composite
from gobrrr.work.estimate import Work

Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

# Leaf operators of these namespaces do no work of their own.
_BOOKKEEPING = frozenset(
    ("autograd", "torch", "profiler", "record_function", "nccl", "c10d", "cuda", "gobrrr")
)
_NO_WORK, _UNKNOWN, _WORK = range(3)
NOTICE = (
    "No GPU work in this trace: its operators are diagnosed as CPU work. Their fixed cost is not "
    "in a trace and counts with their kernels; gobrrr run measures it."
)


@dataclass(frozen=True)
class TraceLane:
    """A recorded CPU program: its operators with work, those that are alike as one op.

    ``works`` are those of one call of each op of the capture.
    """

    capture: CpuCapture
    works: tuple[Work | None, ...]


def lane_of_trace(timeline: Timeline, work_of: WorkOf) -> TraceLane:
    """Finds the operators that do work on the lane of the step.

    An operator does work if a formula says so: the outermost that is no composite, as a run sees it
    (``aten::addmm`` does the work, whatever it calls to broadcast its bias), else a composite that
    holds none. A leaf operator of a framework's namespace without a formula counts too, because
    nobody knows. Operators of autograd's threads count while the step waits for them; those of
    other threads do not.
    """
    host = timeline.host
    parent = host.parent
    is_op = host.kind == HostKind.OP
    on_lane = lane_threads(timeline)[host.thread] if len(host) else np.empty(0, bool)
    state = np.array([*(_state(call, work_of) for call in timeline.calls), _NO_WORK], np.int8)
    composite = np.array([*(is_composite(call.name) for call in timeline.calls), False], bool)
    works = is_op & on_lane & (state[host.call] == _WORK)
    works &= ~composite[host.call] | ~_encloses(parent, works)
    # Recorded without shapes, an operator that has a formula is a kernel whatever helpers it calls.
    sizeless = np.array(
        [*(has_formula(call.name) and not call.tensors for call in timeline.calls), False], bool
    )
    whole = (sizeless & ~composite)[host.call] & ~_encloses(parent, works)
    works |= is_op & on_lane & (state[host.call] == _UNKNOWN) & (whole | ~_encloses(parent, is_op))
    around = np.append(nearest(parent, works), -1)[parent]
    rows = np.flatnonzero(works & (around < 0))
    columns = (host.call, host.name, host.module, host.source, host.phase)
    first, slot = distinct_rows(tuple(column[rows] for column in columns))
    position = np.full(len(host), -1, np.int64)
    position[rows] = slot
    ops = tuple(_op(timeline, row) for row in rows[first].tolist())
    capture = CpuCapture(
        timeline=replace(timeline, notices=(*timeline.notices, NOTICE)),
        position=position,
        recorded=ops,
        matched_fraction=1.0,
    )
    return TraceLane(capture, tuple(usable_work(op.call, work_of) for op in ops))


def has_cpu_work(lane: TraceLane) -> bool:
    """Whether there is anything to diagnose: an operator with work, or a generated kernel."""
    names = lane.capture.timeline.names
    return bool(lane.capture.recorded) or any(map(is_generated_kernel, names))


def _op(timeline: Timeline, row: int) -> StepOp:
    host, names = timeline.host, timeline.names

    def text(index: int) -> str:
        return names[index] if index >= 0 else ""

    call = int(host.call[row])
    return StepOp(
        call=timeline.calls[call] if call >= 0 else OpCall(text(int(host.name[row]))),
        module=text(int(host.module[row])),
        source=text(int(host.source[row])),
        phase=Phase(int(host.phase[row])),
        thread=int(host.thread[row]),
    )


def _state(call: OpCall, work_of: WorkOf) -> int:
    if usable_work(call, work_of) is not None:
        return _WORK
    known = work_of(call)
    if known is not None and known.flops == 0 and known.bytes_moved == 0:
        return _NO_WORK
    namespace, separator, _ = call.name.partition("::")
    plain = separator and namespace not in _BOOKKEEPING and " " not in namespace
    return _UNKNOWN if plain else _NO_WORK


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
