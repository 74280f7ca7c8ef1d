"""Profiled steps and recorded ops of a CPU program -> one ``Timeline`` whose windows tile time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gobrrr.live.profiles.candidates import match_steps
from gobrrr.live.profiles.collective_calls import (
    EXCHANGES,
    WAITING,
    collective_of,
    exchanged,
    issued_by,
    running,
    unknown_collective,
    with_waits,
)
from gobrrr.live.profiles.profile import RawEvents
from gobrrr.timeline.align import recorded_as
from gobrrr.timeline.data import (
    Collective,
    Device,
    HostKind,
    HostSpans,
    Int64,
    KernelKind,
    Kernels,
    Timeline,
)
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall
from gobrrr.work.formulas.communication import COLLECTIVE_NAMES

# Ranges of the user's process that say what the time between ops is spent on. torch writes them.
_DATA_LOADING = ("enumerate(DataLoader)", "enumerate(IterableDataset")
_COMPILATION = ("(dynamo_timed)",)
GC_NAME = "garbage collection"


@dataclass(frozen=True)
class CpuCapture:
    """Profiled steps on a CPU, matched with one recorded step.

    Attributes:
        timeline: host spans of all profiled steps; ``host.call`` is the matched op.
        position: per host row, the index of the recorded op it is (-1: none).
        recorded: the recorded ops, in order.
        matched_fraction: share of the recorded ops that the median step contains.
        issued_by: per row of ``timeline.kernels``, which are collectives that ran beside the lane:
            the index of the recorded op that asked for it (-1: unknown).
        begin_ns: when each step began by the clock of the process.
        queued_ns: how long the thread of the steps waited for a processor in each.
        unmatched: per host row, whether it is called like recorded ops and is none of them; empty:
            none is.
    """

    timeline: Timeline
    position: Int64
    recorded: tuple[StepOp, ...]
    matched_fraction: float
    issued_by: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    begin_ns: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    queued_ns: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    unmatched: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))


def _kind_of(name: str, annotation: bool) -> HostKind:
    if name in WAITING:
        return HostKind.NETWORK
    if name.startswith(_DATA_LOADING):
        return HostKind.DATA_LOADING
    if any(mark in name for mark in _COMPILATION):
        return HostKind.COMPILATION
    return HostKind.ANNOTATION if annotation else HostKind.OP


def build_cpu_capture(
    steps: Sequence[RawEvents],
    recorded: Sequence[StepOp],
    device: Device,
    groups: Mapping[str, Sequence[int]] | None = None,
    own_rank: int | None = None,
) -> CpuCapture:
    """Match every profiled step with the recorded ops and lay the steps end to end.

    ``groups`` are the ranks of each process group by its name, where there are any; ``own_rank``
    is this process among them.
    """
    names: dict[str, int] = {}
    calls: dict[OpCall, int] = {}
    steps = [with_waits(step) for step in steps]
    matches = match_steps(steps, [op.call.name for op in recorded])
    recorded = as_executed(recorded, steps, matches)
    call_of = np.array([calls.setdefault(op.call, len(calls)) for op in recorded], np.int32)

    def intern(text: str) -> int:
        return names.setdefault(text, len(names)) if text else -1

    module_of = np.array([intern(op.module) for op in recorded], np.int32)
    source_of = np.array([intern(op.source) for op in recorded], np.int32)
    phase_of = np.array([int(op.phase) for op in recorded], np.uint8)

    columns: dict[str, list[NDArray[Any]]] = {
        key: []
        for key in ("start", "end", "thread", "kind", "name", "call", "module", "source",
                    "phase", "position", "unmatched")
    }  # fmt: skip
    windows, matched, offset = [], [], 0
    network = _Collectives(recorded, groups or {}, own_rank)
    for step, (rows, found) in zip(steps, matches):
        matched.append(float((found >= 0).mean()) if len(found) else 0.0)
        position = np.full(len(step), -1, np.int64)
        position[rows] = found
        known = position >= 0
        unmatched = np.zeros(len(step), np.bool_)
        unmatched[rows[found < 0]] = True
        network.add(step, position, offset)
        name = np.array([intern(text) for text in step.names], np.int32)[step.name]
        kinds = np.array(
            [(_kind_of(text, False), _kind_of(text, True)) for text in step.names],
            np.uint8,
        ).reshape(-1, 2)
        kind = np.where(step.annotation, kinds[step.name, 1], kinds[step.name, 0])
        collections = np.array(step.gc_ns, np.int64).reshape(-1, 2)
        extra = len(collections)
        parts: dict[str, NDArray[Any]] = {
            "start": np.append(step.start_ns, collections[:, 0]) + offset,
            "end": np.append(step.end_ns, collections[:, 1]) + offset,
            "thread": np.append(step.thread, np.zeros(extra, np.int32)),
            "kind": np.append(kind, np.full(extra, HostKind.GARBAGE_COLLECTION)),
            "name": np.append(name, np.full(extra, intern(GC_NAME))),
            "call": np.append(_taken(call_of, position, known), np.full(extra, -1)),
            "module": np.append(_taken(module_of, position, known), np.full(extra, -1)),
            "source": np.append(_taken(source_of, position, known), np.full(extra, -1)),
            "phase": np.append(np.where(known, _taken(phase_of, position, known), 0),
                               np.zeros(extra)),
            "position": np.append(position, np.full(extra, -1)),
            "unmatched": np.append(unmatched, np.zeros(extra, np.bool_)),
        }  # fmt: skip
        for key, part in parts.items():
            columns[key].append(part)
        windows.append((offset, offset + step.length_ns))
        offset += step.length_ns
    joined = {
        key: np.concatenate(parts) if parts else np.empty(0, np.int64)
        for key, parts in columns.items()
    }
    order = np.lexsort((-(joined["end"] - joined["start"]), joined["start"]))
    joined = {key: part[order] for key, part in joined.items()}
    host = HostSpans(
        start_ns=joined["start"].astype(np.int64),
        end_ns=joined["end"].astype(np.int64),
        thread=joined["thread"].astype(np.int32),
        kind=joined["kind"].astype(np.uint8),
        name=joined["name"].astype(np.int32),
        call=joined["call"].astype(np.int32),
        module=joined["module"].astype(np.int32),
        source=joined["source"].astype(np.int32),
        phase=joined["phase"].astype(np.uint8),
        sequence=np.full(len(order), -1, np.int64),
    )
    kernels, collectives, issuers = network.columns(intern)
    timeline = Timeline(
        names=tuple(names),
        calls=tuple(calls),
        host=host,
        kernels=kernels,
        collectives=collectives,
        steps=np.array(windows, np.int64).reshape(-1, 2),
        step_names=tuple(f"step {i + 1}" for i in range(len(windows))),
        device=device,
    )
    fraction = float(np.median(matched)) if matched else 0.0
    return CpuCapture(
        timeline,
        joined["position"].astype(np.int64),
        tuple(recorded),
        fraction,
        issuers,
        np.array([step.begin_ns for step in steps], np.int64),
        np.array([step.queued_ns for step in steps], np.int64),
        joined["unmatched"].astype(np.bool_),
    )


class _Collectives:
    """Gathers what ran for other ranks, step by step, as columns of ``Kernels``."""

    def __init__(
        self,
        recorded: Sequence[StepOp],
        groups: Mapping[str, Sequence[int]],
        own_rank: int | None,
    ) -> None:
        self._of_op = {
            index: collective_of(op.call, groups, own_rank)
            for index, op in enumerate(recorded)
            if op.call.name in COLLECTIVE_NAMES
        }
        self._recorded = recorded
        self._rows: list[tuple[int, int, str, int]] = []

    def add(self, step: RawEvents, position: Int64, offset: int) -> None:
        """Takes those of one step that begins at ``offset``."""
        exchanges = {i for i in self._of_op if self._recorded[i].call.name in EXCHANGES}
        self._add(step, running(step), position, self._of_op.keys() - exchanges, offset)
        self._add(step, exchanged(step), position, exchanges, offset)

    def _add(
        self, step: RawEvents, rows: Int64, position: Int64, ops: AbstractSet[int], offset: int
    ) -> None:
        """``rows`` of the step, each asked for by one of these recorded ops."""
        if not len(rows):
            return
        asks = np.array([place in ops for place in position.tolist()], bool)
        issuers = issued_by(step, rows, np.flatnonzero(asks).astype(np.int64))
        for row, issuer in zip(rows.tolist(), issuers.tolist()):
            op = int(position[issuer]) if issuer >= 0 else -1
            # A collective starts when this rank has come, be its thread busy or not.
            begin = int(step.start_ns[issuer if issuer >= 0 else row])
            self._rows.append(
                (begin + offset, int(step.end_ns[row]) + offset, step.names[step.name[row]], op)
            )

    def columns(
        self, intern: Callable[[str], int]
    ) -> tuple[Kernels, tuple[Collective, ...], Int64]:
        """The rows by start, what each is, and the recorded op that asked for each (-1: none)."""
        self._rows.sort()
        count = len(self._rows)
        known: dict[Collective, int] = {}
        which = [
            known.setdefault(self._of_op[op] if op >= 0 else unknown_collective(name), len(known))
            for _, _, name, op in self._rows
        ]
        found = tuple(known)
        none = np.full(count, -1, np.int64)
        kernels = Kernels(
            start_ns=np.array([row[0] for row in self._rows], np.int64),
            end_ns=np.array([row[1] for row in self._rows], np.int64),
            stream=np.zeros(count, np.int32),
            kind=np.full(count, KernelKind.COLLECTIVE, np.uint8),
            name=np.array([intern(row[2]) for row in self._rows], np.int32),
            op=none,
            launch=none,
            bytes_moved=np.array(
                [-1 if found[i].bytes_in is None else found[i].bytes_in for i in which], np.int64
            ),
            collective=np.array(which, np.int64),
            twin=none,
        )
        return kernels, found, np.array([row[3] for row in self._rows], np.int64)


def as_executed(
    recorded: Sequence[StepOp],
    steps: Sequence[RawEvents],
    matches: Sequence[tuple[Int64, Int64]],
) -> list[StepOp]:
    """The recorded ops, those in place that ran in place: they allocate nothing to fault in."""
    result = list(recorded)
    for step, (rows, found) in zip(steps, matches):
        for row, index in zip(rows[found >= 0], found[found >= 0]):
            name = step.names[step.name[row]]
            op = result[index]
            if name != op.call.name and recorded_as(name) == op.call.name:
                result[index] = replace(op, call=replace(op.call, name=name), page_faults=0)
    return result


def _taken(
    values: NDArray[np.generic], position: Int64, known: NDArray[np.bool_]
) -> NDArray[np.generic]:
    if not len(values):
        return np.full(len(position), -1, np.int32)
    # Phases are unsigned, where there is no -1 (and NumPy 2.5 refuses one).
    return np.where(known, values[np.maximum(position, 0)].astype(np.int64), -1)
