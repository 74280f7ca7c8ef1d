"""A costed step as a ``Timeline``: what a recording of it would hold, had it run.

On a device the host issues ops and the device runs their kernels (``models.replay``); on a CPU one
thread does both. From here on a prediction is attributed as a recording is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gobrrr.models.host_lane import HostCall, HostCosts, host_seconds
from gobrrr.models.replay import ReplayedOp, replay
from gobrrr.models.target import TargetDevice
from gobrrr.prediction.costs import CostedOp
from gobrrr.timeline.data import (
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
    fixed_ns: NDArray[np.float64]
    position: Int64


def device_of(target: TargetDevice) -> Device:
    """The target as what ran a timeline's kernels."""
    return Device(target.name, target.kind, 0, target.memory_bytes, target.multiprocessors)


def predicted_timeline(
    ops: Sequence[CostedOp], target: TargetDevice, host: HostCosts
) -> PredictedTimeline:
    """Runs the ops of a step, as one of many steps.

    Without any kernel the host alone takes time: one lane, as on a CPU.
    """
    if target.kind == "cpu" or not any(costed.kernels for costed in ops):
        return _one_lane(ops, target, host)
    return _two_lanes(ops, target, host)


@dataclass
class _Spans:
    """Host spans and kernels as rows, before they are sorted into columns."""

    names: dict[str, int] = field(default_factory=dict)
    calls: dict[tuple[OpCall, Work | None], int] = field(default_factory=dict)
    # start, end, kind, name, call, module, source, phase, position
    host: list[tuple[int, int, int, int, int, int, int, int, int]] = field(default_factory=list)

    def intern(self, text: str) -> int:
        return self.names.setdefault(text, len(self.names)) if text else -1

    def op(self, costed: CostedOp, position: int, start: int, end: int) -> int:
        """Adds an op's span; returns its row."""
        self.host.append(
            (
                start,
                end,
                HostKind.OP,
                self.intern(costed.op.call.name),
                self.calls.setdefault((costed.op.call, costed.work), len(self.calls)),
                self.intern(costed.op.module),
                self.intern(costed.op.source),
                costed.op.phase,
                position,
            )
        )
        return len(self.host) - 1

    def call(self, costed: CostedOp, kind: HostKind, name: str, start: int, end: int) -> int:
        """Adds a runtime call inside an op; returns its row."""
        module, source = self.intern(costed.op.module), self.intern(costed.op.source)
        called = self.intern(name)
        self.host.append((start, end, kind, called, -1, module, source, costed.op.phase, -1))
        return len(self.host) - 1

    def columns(self) -> tuple[HostSpans, Int64, Int64]:
        """The spans in order, the place of each row among them, and the ops that they are."""
        table = np.array(self.host, np.int64).reshape(-1, 9)
        order = np.lexsort((table[:, 0] - table[:, 1], table[:, 0]))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        table = table[order]
        spans = HostSpans(
            start_ns=table[:, 0],
            end_ns=table[:, 1],
            thread=np.zeros(len(table), np.int32),
            kind=table[:, 2].astype(np.uint8),
            name=table[:, 3].astype(np.int32),
            call=table[:, 4].astype(np.int32),
            module=table[:, 5].astype(np.int32),
            source=table[:, 6].astype(np.int32),
            phase=table[:, 7].astype(np.uint8),
            sequence=np.full(len(table), -1, np.int64),
        )
        return spans, place, table[:, 8]


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _one_lane(ops: Sequence[CostedOp], target: TargetDevice, host: HostCosts) -> PredictedTimeline:
    spans, now_s = _Spans(), 0.0
    for number, costed in enumerate(ops):
        begin_s = now_s
        now_s += costed.host_calls * host_seconds(costed.host_call, host) + costed.device_s
        spans.op(costed, number, _ns(begin_s), _ns(now_s))
    columns, _, position = spans.columns()
    return PredictedTimeline(
        timeline=_timeline(spans, columns, no_kernels(), _ns(now_s), target),
        works=tuple(work for _, work in spans.calls),
        fixed_ns=np.empty(0),
        position=position,
    )


def _two_lanes(ops: Sequence[CostedOp], target: TargetDevice, host: HostCosts) -> PredictedTimeline:
    calls: list[HostCall] = []
    seconds: list[float] = []
    for costed in ops:
        calls += [costed.host_call] * costed.host_calls
        seconds += [0.0] * (costed.host_calls - 1) + [costed.device_s]
    ran = replay(calls, seconds, host)
    spans = _Spans()
    _issue(spans, ops, ran.lead)
    launched = _issue(spans, ops, ran.ops)
    # start, end, kind, name, bytes, op, launch
    rows: list[tuple[int, int, int, int, int, int, int]] = []
    fixed_ns: list[float] = []
    for costed, row, (span, launch) in zip(ops, _last_calls(ops, ran.ops), launched):
        kind = KernelKind.COPY if costed.is_copy else KernelKind.KERNEL
        call = costed.op.call
        moved = (call.outputs or call.tensors)[0].unique_bytes if costed.is_copy else None
        name = spans.intern(call.name)
        for i in range(costed.kernels):
            each_s = costed.device_s / costed.kernels
            start_s = row.start_s + i * (each_s + host.gap_s)
            last = i == costed.kernels - 1
            start, end = _ns(start_s), _ns(row.end_s if last else start_s + each_s)
            rows.append((start, end, kind, name, -1 if moved is None else moved, span, launch))
            fixed_ns.append(costed.fixed_s / costed.kernels * 1e9)
    columns, place, position = spans.columns()
    table = np.array(rows, np.int64)
    none = np.full(len(rows), -1, np.int64)
    kernels = Kernels(
        start_ns=table[:, 0],
        end_ns=table[:, 1],
        stream=np.zeros(len(rows), np.int32),
        kind=table[:, 2].astype(np.uint8),
        name=table[:, 3].astype(np.int32),
        op=place[table[:, 5]],
        launch=place[table[:, 6]],
        bytes_moved=table[:, 4],
        collective=none,
        twin=none,
    )
    # The last kernel's end is the step's, to the nanosecond.
    return PredictedTimeline(
        timeline=_timeline(spans, columns, kernels, int(table[-1, 1]), target),
        works=tuple(work for _, work in spans.calls),
        fixed_ns=np.array(fixed_ns, np.float64),
        position=position,
    )


def _last_calls(ops: Sequence[CostedOp], rows: Sequence[ReplayedOp]) -> list[ReplayedOp]:
    """Of each op the last of its host calls: the one that launches."""
    last = np.cumsum([costed.host_calls for costed in ops]) - 1
    return [rows[i] for i in last.tolist()]


def _issue(
    spans: _Spans, ops: Sequence[CostedOp], rows: Sequence[ReplayedOp]
) -> list[tuple[int, int]]:
    """Adds the host's side of a step; returns the rows of each op and of its launch."""
    found, at = [], 0
    for position, costed in enumerate(ops):
        first, last = rows[at], rows[at + costed.host_calls - 1]
        at += costed.host_calls
        issued, told = _ns(last.issued_s), _ns(last.told_s)
        span = spans.op(costed, position, _ns(first.begin_s), told)
        launch = -1
        if costed.kernels:
            # Its length is in the op's: what is known is when it returns.
            launch = spans.call(costed, HostKind.LAUNCH, LAUNCHING, issued, issued)
        if told > issued:
            spans.call(costed, HostKind.SYNCHRONISE, WAITING, issued, told)
        found.append((span, launch))
    return found


def _timeline(
    spans: _Spans, host: HostSpans, kernels: Kernels, end_ns: int, target: TargetDevice
) -> Timeline:
    return Timeline(
        names=tuple(spans.names),
        calls=tuple(call for call, _ in spans.calls),
        host=host,
        kernels=kernels,
        steps=np.array([[0, end_ns]], np.int64),
        step_names=("step",),
        device=device_of(target),
    )
