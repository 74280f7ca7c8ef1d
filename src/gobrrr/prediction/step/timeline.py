"""A costed step as a ``Timeline``: what a recording of it would hold, had it run.

On a device the host issues ops and the device runs their kernels (``step.replay``; in several
streams, ``step.stream_replay``); on a CPU one thread does both. From here on a prediction is
attributed as a recording is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.prediction.step.costs import CostedOp, OpCost
from gobrrr.prediction.step.host_calls import calls_of_step, host_calls_of
from gobrrr.prediction.step.host_lane import HostCosts, host_seconds
from gobrrr.prediction.step.replay import Replay, ReplayedOps, replay
from gobrrr.prediction.step.stream_replay import SLOWDOWN_BESIDE, StreamCall, replay_streams
from gobrrr.timeline.data import (
    Collective,
    Device,
    HostKind,
    HostSpans,
    Int64,
    KernelKind,
    Kernels,
    Timeline,
    no_kernels,
)
from gobrrr.timeline.ops import OpCall
from gobrrr.work.estimate import Work

Float64 = NDArray[np.float64]

LAUNCHING, WAITING = "launch", "wait for the device"


@dataclass(frozen=True)
class PredictedTimeline:
    """A step as it will run.

    Attributes:
        timeline: one window. On a device the host spans of the step before are in it too: the host
            runs ahead, and the device may wait for what began before the window.
        works: of each of ``timeline.calls``; ``None`` without a formula.
        fixed_ns: the fixed cost of each of ``timeline.kernels``.
        position: for each host span, the op that it is (-1: a launch, a wait).
    """

    timeline: Timeline
    works: tuple[Work | None, ...]
    fixed_ns: Float64
    position: Int64


def device_of(target: TargetDevice) -> Device:
    """The target as what ran a timeline's kernels."""
    return Device(target.name, target.kind, 0, target.memory_bytes, target.multiprocessors)


def predicted_timeline(
    ops: Sequence[CostedOp],
    target: TargetDevice,
    host: HostCosts,
    slowdown: float = SLOWDOWN_BESIDE,
) -> PredictedTimeline:
    """Runs the ops of a step, as one of many steps.

    Without any kernel the host alone takes time: one lane, as on a CPU. ``slowdown``: of what runs
    beside a collective.
    """
    if target.kind == "cpu" or not any(costed.kernels for costed in ops):
        return _one_lane(ops, target, host)
    return _on_streams(ops, target, host, slowdown)


class _Step:
    """The ops of a step as columns, row by row; what is alike has one number.

    Attributes:
        calls: the distinct calls with their work.
        call: of each op, its place in ``calls``.
        label: of each op, its place in ``labels``: name, module and line.
    """

    def __init__(self, ops: Sequence[CostedOp]) -> None:
        self.ops = ops
        self.calls: dict[tuple[OpCall, Work | None], int] = {}
        of_cost: dict[OpCost, int] = {}
        labels: dict[tuple[str, str, str], int] = {}
        call, label = [], []
        for costed in ops:
            op, cost = costed.op, costed.cost
            number = of_cost.get(cost)
            if number is None:
                number = self.calls.setdefault((cost.call, cost.work), len(self.calls))
                of_cost[cost] = number
            call.append(number)
            label.append(labels.setdefault((cost.call.name, op.module, op.source), len(labels)))
        self.labels = list(labels)
        self.call, self.label = np.array(call, np.int64), np.array(label, np.int64)
        self.phase = np.array([costed.op.phase for costed in ops], np.uint8)
        self.kernels = np.array([costed.cost.kernels for costed in ops], np.int64)
        # Which row of a replay, a row for each host call, is an op's last: the one that launches.
        calls = np.array([costed.cost.host_calls for costed in ops], np.int64)
        self.last = np.cumsum(calls) - 1
        self.first = self.last - calls + 1


class _Spans:
    """Host spans in columns: of each op its own, then its launch and its wait for the device."""

    def __init__(self, step: _Step) -> None:
        self.step = step
        self.names: dict[str, int] = {}
        # row, op, start, end, kind, name, call, position
        self._parts: list[tuple[Int64, ...]] = []
        self._size = 0

    def intern(self, text: str) -> int:
        """The number of a name; -1 for none."""
        return self.names.setdefault(text, len(self.names)) if text else -1

    def issue(
        self, start: Int64, issued: Int64, told: Int64, launches: NDArray[np.bool_]
    ) -> tuple[Int64, Int64]:
        """Adds the host's side of a step; returns the rows of each op and of its launch.

        Args:
            start: when the host begins with each op, in ns.
            issued: when its launches have returned; their length is in the op's.
            told: when the host goes on.
            launches: which ops launch something.
        """
        step, waits = self.step, told > issued
        size = 1 + launches.astype(np.int64) + waits
        row = self._size + np.cumsum(size) - size
        self._size += int(size.sum())
        self._name(launches, waits)
        ops = np.arange(len(row))
        names = np.array([self.intern(name) for name, _, _ in step.labels], np.int64)
        self._parts.append(
            (row, ops, start, told, _all(ops, HostKind.OP), names[step.label], step.call, ops)
        )
        after = row + 1
        for rows, kind, at, begin, end in (
            (launches, HostKind.LAUNCH, after, issued, issued),
            (waits, HostKind.SYNCHRONISE, after + launches, issued, told),
        ):
            some = ops[rows]
            if len(some):
                called = self.intern(LAUNCHING if kind == HostKind.LAUNCH else WAITING)
                none = _all(some, -1)
                self._parts.append(
                    (at[rows], some, begin[rows], end[rows], _all(some, kind), _all(some, called),
                     none, none)
                )  # fmt: skip
        return row, np.where(launches, after, -1)

    def _name(self, launches: NDArray[np.bool_], waits: NDArray[np.bool_]) -> None:
        """Numbers the names in the order in which the rows have them."""
        step = self.step
        _, first = np.unique(step.label * 4 + launches * 2 + waits, return_index=True)
        for at in np.sort(first).tolist():
            for text in step.labels[step.label[at]]:
                self.intern(text)
            if launches[at]:
                self.intern(LAUNCHING)
            if waits[at]:
                self.intern(WAITING)

    def columns(self) -> tuple[HostSpans, Int64, Int64]:
        """The spans in order, the place of each row among them, and the ops that they are."""
        row, op, start, end, kind, name, call, position = map(np.concatenate, zip(*self._parts))
        order = np.lexsort((row, start - end, start))
        place = np.empty(len(order), np.int64)
        place[row[order]] = np.arange(len(order))
        step, op = self.step, op[order]
        label = step.label[op]
        module, source = (
            np.array([self.intern(names[i]) for names in step.labels], np.int32) for i in (1, 2)
        )
        spans = HostSpans(
            start_ns=start[order],
            end_ns=end[order],
            thread=np.zeros(len(order), np.int32),
            kind=kind[order].astype(np.uint8),
            name=name[order].astype(np.int32),
            call=call[order].astype(np.int32),
            module=module[label],
            source=source[label],
            phase=step.phase[op],
            sequence=np.full(len(order), -1, np.int64),
        )
        return spans, place, position[order]


def _all(like: Int64, value: int) -> Int64:
    return np.full(len(like), value, np.int64)


def _ns(seconds: Float64) -> Int64:
    return np.rint(seconds * 1e9).astype(np.int64)


def _one_lane(ops: Sequence[CostedOp], target: TargetDevice, host: HostCosts) -> PredictedTimeline:
    step, now_s = _Step(ops), 0.0
    begin_s, end_s = [], []
    for costed, call in zip(ops, host_calls_of(ops)):
        begin_s.append(now_s)
        now_s += costed.cost.host_calls * host_seconds(call, host) + costed.cost.device_s
        end_s.append(now_s)
    spans = _Spans(step)
    start, end = _ns(np.array(begin_s)), _ns(np.array(end_s))
    spans.issue(start, end, end, np.zeros(len(ops), bool))
    columns, _, position = spans.columns()
    return PredictedTimeline(
        timeline=_timeline(spans, columns, no_kernels(), int(_ns(np.array(now_s))), target),
        works=tuple(work for _, work in step.calls),
        fixed_ns=np.empty(0),
        position=position,
    )


def replayed(ops: Sequence[CostedOp], host: HostCosts, slowdown: float = SLOWDOWN_BESIDE) -> Replay:
    """One row for each host call of the ops; one of them at least launches a kernel."""
    calls = calls_of_step(ops)
    seconds: list[float] = []
    for costed in ops:
        seconds += [0.0] * (costed.cost.host_calls - 1)
        seconds.append(costed.cost.device_s)
    if not _in_streams(ops):
        return replay(calls, seconds, host)
    last = np.cumsum([costed.cost.host_calls for costed in ops]) - 1
    rows: list[StreamCall] = []
    for costed in ops:
        after = tuple(int(last[at]) if at >= 0 else at for at in costed.op.after)
        for _ in range(costed.cost.host_calls):
            number = len(rows)
            stream, link = costed.op.stream, costed.cost.link
            rows.append(StreamCall(calls[number], seconds[number], stream, after, link))
    return replay_streams(rows, host, slowdown)


def _on_streams(
    ops: Sequence[CostedOp], target: TargetDevice, host: HostCosts, slowdown: float
) -> PredictedTimeline:
    ran, step = replayed(ops, host, slowdown), _Step(ops)
    spans = _Spans(step)
    spans.issue(*_issued(ran.lead, step))
    span, launch = spans.issue(*_issued(ran.ops, step))
    kind, moved, known, collectives = _moved(ops)
    columns, place, position = spans.columns()
    took_s = np.array([costed.cost.device_s for costed in ops])
    start_s, end_s = ran.ops.start_s[step.last], ran.ops.end_s[step.last]
    count = step.kernels
    if _in_streams(ops):
        # Beside a collective they take longer than alone.
        took_s = end_s - start_s - (count - 1) * host.gap_s
    # Kernel by kernel: which op's it is, and which of them.
    op = np.repeat(np.arange(len(ops)), count)
    number = np.arange(len(op)) - np.repeat(np.cumsum(count) - count, count)
    each_s = took_s[op] / count[op]
    begin_s = start_s[op] + number * (each_s + host.gap_s)
    start = _ns(begin_s)
    end = _ns(np.where(number == count[op] - 1, end_s[op], begin_s + each_s))
    fixed_ns = np.array([costed.cost.fixed_s for costed in ops])[op] / count[op] * 1e9
    by_start = np.argsort(start, kind="stable")
    op = op[by_start]
    kernels = Kernels(
        start_ns=start[by_start],
        end_ns=end[by_start],
        stream=np.array([costed.op.stream for costed in ops], np.int32)[op],
        kind=kind[op],
        name=columns.name[place[span[op]]],
        op=place[span[op]],
        launch=place[launch[op]],
        bytes_moved=moved[op],
        collective=known[op],
        twin=np.full(len(op), -1, np.int64),
    )
    # The last kernel's end is the step's, to the nanosecond.
    return PredictedTimeline(
        timeline=_timeline(spans, columns, kernels, int(end.max()), target, collectives),
        works=tuple(work for _, work in step.calls),
        fixed_ns=fixed_ns[by_start],
        position=position,
    )


def _issued(rows: ReplayedOps, step: _Step) -> tuple[Int64, Int64, Int64, NDArray[np.bool_]]:
    """When the host begins with each op, has issued it, goes on; and what launches."""
    return (
        _ns(rows.begin_s[step.first]),
        _ns(rows.issued_s[step.last]),
        _ns(rows.told_s[step.last]),
        step.kernels > 0,
    )


def _in_streams(ops: Sequence[CostedOp]) -> bool:
    return any(costed.op.stream or costed.op.collective for costed in ops)


def _moved(
    ops: Sequence[CostedOp],
) -> tuple[NDArray[np.uint8], Int64, Int64, tuple[Collective, ...]]:
    """Of each op the kind of its kernels, the bytes they move, and which collective they are."""
    collectives: dict[Collective, int] = {}
    kinds, sizes, numbers = [], [], []
    for costed in ops:
        asked, kind, moved, known = costed.op.collective, KernelKind.KERNEL, -1, -1
        if asked is not None:
            record = Collective(
                asked.kind, asked.n_bytes, asked.n_bytes, "", len(asked.ranks), asked.group
            )
            known = collectives.setdefault(record, len(collectives))
            kind, moved = KernelKind.COLLECTIVE, asked.n_bytes
        elif costed.cost.is_copy:
            call = costed.cost.call
            size = (call.outputs or call.tensors)[0].unique_bytes
            kind, moved = KernelKind.COPY, -1 if size is None else size
        kinds.append(kind)
        sizes.append(moved)
        numbers.append(known)
    return (
        np.array(kinds, np.uint8),
        np.array(sizes, np.int64),
        np.array(numbers, np.int64),
        tuple(collectives),
    )


def _timeline(
    spans: _Spans,
    host: HostSpans,
    kernels: Kernels,
    end_ns: int,
    target: TargetDevice,
    collectives: tuple[Collective, ...] = (),
) -> Timeline:
    return Timeline(
        names=tuple(spans.names),
        calls=tuple(call for call, _ in spans.step.calls),
        host=host,
        kernels=kernels,
        steps=np.array([[0, end_ns]], np.int64),
        step_names=("step",),
        device=device_of(target),
        collectives=collectives,
    )
