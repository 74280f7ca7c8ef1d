"""Profiled steps of a GPU, matched with the recorded step: every kernel gets its op's place.

The profiler sees shapes but neither modules nor lines, the recorder sees everything but time. Both
saw the same ops in the same order, so each profiled op is the recorded one of its name and shapes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gobrrr.recordings.names import STEP_PREFIX, is_graph_launch
from gobrrr.recordings.trace import NO_STACKS
from gobrrr.timeline.align import match, recorded_as
from gobrrr.timeline.data import HostKind, Int32, Int64, Timeline, names_that
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.names import GRAPH_REPLAY
from gobrrr.timeline.nesting import inherited_minimum, nearest
from gobrrr.timeline.ops import OpCall

# Of which the profiler has the shapes if their lists are short.
_ON_LISTS = ("aten::_foreach_", "aten::_fused_", "aten::_amp_foreach_")
# Below this share of ops with the name and shapes of a recorded one, names alone are compared.
LEAST_BY_SHAPES = 0.5
# Steps of which less than this matches are not the recorded one in order.
LEAST_IN_ORDER = 0.9


@dataclass(frozen=True)
class RecordedTimeline:
    """Profiled steps on a device, matched with one recorded step.

    Attributes:
        timeline: calls, modules, lines and phases are the recorded ops' where they match.
        position: per host row, the index of the recorded op that it is, or is a part of (-1: none).
        recorded: the recorded ops, in order; those in place that ran in place.
        matched_fraction: of the profiled ops that look like recorded ones, the share that matched.
    """

    timeline: Timeline
    position: Int64
    recorded: tuple[StepOp, ...]
    matched_fraction: float

    @property
    def in_order(self) -> bool:
        """Whether the recorded order is that of the profiled steps."""
        return bool(self.recorded) and self.matched_fraction >= LEAST_IN_ORDER


def with_recorded(
    timeline: Timeline, recorded: Sequence[StepOp], *, varying: bool = False
) -> RecordedTimeline:
    """Match every profiled step with the recorded ops.

    An op's rows below it (calls of the runtime, operators that it calls) are parts of it.
    ``varying``: steps differ in size. A call on other shapes than the recorded one's is then the
    same op of a step of another size: it keeps the shapes that the profiler saw, which are those of
    the time beside them.
    """
    timeline = _without_advice(timeline)
    host = timeline.host
    if not recorded or not len(host):
        return RecordedTimeline(timeline, np.full(len(host), -1, np.int64), tuple(recorded), 0.0)
    parent = host.parent
    rows = _candidates(timeline, parent, {op.call.name for op in recorded})
    step = _step_of(timeline, rows)
    names = [timeline.names[name] for name in host.name[rows].tolist()]
    known = {
        call: _key(timeline.calls[call]) for call in set(host.call[rows].tolist()) if call >= 0
    }
    keys = [known.get(call, name) for call, name in zip(host.call[rows].tolist(), names)]
    # The profiler leaves the shapes of long lists out: a name without any is compared alone.
    shapeless = set(names) - {
        name for call, name in zip(host.call[rows].tolist(), names)
        if call >= 0 and any(tensor.shape for tensor in timeline.calls[call].tensors)
    }  # fmt: skip
    wanted = [_key(op.call, shapeless) for op in recorded]
    found = _match_steps(keys, step, wanted)
    if len(found) and (varying or (found >= 0).mean() < LEAST_BY_SHAPES):
        by_name = _match_steps(names, step, [op.call.name for op in recorded])
        found = by_name if (by_name >= 0).sum() > (found >= 0).sum() else found
    ran = _as_executed(recorded, names, found)
    kept = np.zeros(len(host), bool)
    if varying:
        kept[rows] = [
            at >= 0 and call >= 0 and _of_other_size(timeline.calls[call], recorded[at].call)
            for call, at in zip(host.call[rows].tolist(), found.tolist())
        ]
    launches, replays = _graph_launches(timeline, recorded)
    found = np.append(found, replays)
    position = np.full(len(host), -1, np.int64)
    position[np.append(rows, launches)] = found
    placed = _placed(timeline, parent, position, ran, kept)
    above = nearest(parent, position >= 0)
    inherited = np.where(above >= 0, position[above], -1)
    fraction = float((found >= 0).mean()) if len(found) else 0.0
    return RecordedTimeline(placed, inherited, tuple(ran), fraction)


def _candidates(timeline: Timeline, parent: Int64, recorded: set[str]) -> Int64:
    """The outermost operators with a recorded name, in the order in which they began.

    Of all threads: autograd's works while the step's waits for it.
    """
    host = timeline.host
    wanted = np.array(
        [name in recorded or recorded_as(name) in recorded for name in timeline.names], bool
    )
    is_wanted = wanted[host.name] & (host.kind == HostKind.OP)
    rows = np.arange(len(host), dtype=np.int64)
    outermost = inherited_minimum(parent, np.where(is_wanted, rows, len(host)))
    return np.flatnonzero(is_wanted & (outermost == rows))


def _step_of(timeline: Timeline, rows: Int64) -> Int64:
    """The number of the step whose host code each row is of."""
    marks = step_marks(timeline)
    return np.searchsorted(marks, timeline.host.start_ns[rows], side="right") - 1


def step_marks(timeline: Timeline) -> Int64:
    """Where the host's code of each step begins."""
    host = timeline.host
    is_mark = np.array([name.startswith(STEP_PREFIX) for name in timeline.names], bool)
    if not len(host) or not is_mark.any():
        return timeline.steps[:, 0]
    return np.sort(host.start_ns[is_mark[host.name] & (host.kind == HostKind.ANNOTATION)])


def _match_steps(seen: Sequence[str], step: Int64, recorded: Sequence[str]) -> Int64:
    found = np.full(len(seen), -1, np.int64)
    known: dict[tuple[str, ...], NDArray[np.int64]] = {}
    for number in np.unique(step).tolist():
        rows = np.flatnonzero(step == number)
        keys = tuple(seen[row] for row in rows.tolist())
        if keys not in known:
            known[keys] = match(keys, recorded)
        found[rows] = known[keys]
    return found


def _without_advice(timeline: Timeline) -> Timeline:
    """Nobody records these steps again: their lines are the recorded ops', or unknown."""
    return replace(timeline, notices=tuple(n for n in timeline.notices if n != NO_STACKS))


def _graph_launches(timeline: Timeline, recorded: Sequence[StepOp]) -> tuple[Int64, Int64]:
    """Calls that launched graphs, and which recorded replay each is: in order, step by step.

    -1 in steps that launched more or fewer than the recorded one; none where none was recorded.
    """
    host = timeline.host
    is_graph = names_that(timeline.names, is_graph_launch)
    launches = np.flatnonzero(is_graph[host.name] & (host.kind == HostKind.LAUNCH))
    replays = [i for i, op in enumerate(recorded) if op.call.name == GRAPH_REPLAY]
    if not replays:
        launches = launches[:0]
    found = np.full(len(launches), -1, np.int64)
    step = _step_of(timeline, launches)
    for number in np.unique(step).tolist():
        rows = np.flatnonzero(step == number)
        if len(rows) == len(replays):
            found[rows] = replays
    return launches, found


def _key(call: OpCall, shapeless: Collection[str] = ()) -> str:
    """Name and shapes. Tensors without dimensions are left out: numbers become such tensors.

    Of names that are ``shapeless``, and of operators on lists, the name alone.
    """
    if call.name in shapeless or call.name.startswith(_ON_LISTS):
        return recorded_as(call.name)
    shapes = "".join(str(tensor.shape) for tensor in call.tensors if tensor.shape)
    return f"{recorded_as(call.name)}{shapes}"


def _of_other_size(seen: OpCall, recorded: OpCall) -> bool:
    """Whether a call is the recorded one on other shapes, where the profiler saw all of them."""
    here, there = ([t.shape for t in call.tensors if t.shape] for call in (seen, recorded))
    return len(here) == len(there) and here != there


def _as_executed(recorded: Sequence[StepOp], names: Sequence[str], found: Int64) -> list[StepOp]:
    """The recorded ops; in place those that ran in place, as they do where no mode watches."""
    ran = list(recorded)
    for name, position in zip(names, found.tolist()):
        if position >= 0 and name != (call := ran[position].call).name:
            ran[position] = replace(ran[position], call=replace(call, name=name))
    return ran


def _placed(
    timeline: Timeline,
    parent: Int64,
    position: Int64,
    recorded: Sequence[StepOp],
    kept: NDArray[np.bool_],
) -> Timeline:
    """The timeline with what is known of the recorded ops in the rows that are theirs.

    Rows that are ``kept`` have a call of their own.
    """
    host = timeline.host
    names = {name: number for number, name in enumerate(timeline.names)}

    def intern(text: str) -> int:
        return names.setdefault(text, len(names)) if text else -1

    # Which of its tensors are one another is no part of a call's equality.
    calls: dict[tuple[OpCall, tuple[int, ...]], int] = {}
    first = len(timeline.calls)
    call_of = np.array(
        [first + calls.setdefault((op.call, op.call.sharing), len(calls)) for op in recorded],
        np.int32,
    )
    above = nearest(parent, position >= 0)
    within = np.where(above >= 0, position[above], -1)
    part, own = within >= 0, position >= 0

    def filled(column: Int32, values: list[int]) -> Int32:
        given = np.array(values, np.int32)[np.maximum(within, 0)]
        return np.where(part & (given >= 0), given, column).astype(np.int32)

    call = np.where(own, call_of[np.maximum(position, 0)], np.where(part, -1, host.call))
    call = np.where(kept, host.call, call)
    phases = np.array([int(op.phase) for op in recorded], np.uint8)[np.maximum(within, 0)]
    module = filled(host.module, [intern(op.module) for op in recorded])
    source = filled(host.source, [intern(op.source) for op in recorded])
    placed = replace(
        host, call=call.astype(np.int32), module=module, source=source,
        phase=np.where(part, phases, host.phase).astype(np.uint8),
    )  # fmt: skip
    return replace(
        timeline, names=tuple(names), calls=(*timeline.calls, *(call for call, _ in calls)),
        host=placed,
    )  # fmt: skip
