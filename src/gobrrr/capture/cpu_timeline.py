"""Profiled steps and recorded ops of a CPU program -> one ``Timeline`` whose windows tile time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gobrrr.capture.align import RECORDED_AS, candidate_rows, match
from gobrrr.capture.profile import RawEvents
from gobrrr.timeline.data import (
    Device,
    HostKind,
    HostSpans,
    Int64,
    Timeline,
    no_kernels,
)
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall

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
    """

    timeline: Timeline
    position: Int64
    recorded: tuple[StepOp, ...]
    matched_fraction: float


def _kind_of(name: str, annotation: bool) -> HostKind:
    if name.startswith(_DATA_LOADING):
        return HostKind.DATA_LOADING
    if any(mark in name for mark in _COMPILATION):
        return HostKind.COMPILATION
    return HostKind.ANNOTATION if annotation else HostKind.OP


def build_cpu_capture(
    steps: Sequence[RawEvents], recorded: Sequence[StepOp], device: Device
) -> CpuCapture:
    """Match every profiled step with the recorded ops and lay the steps end to end."""
    names: dict[str, int] = {}
    calls: dict[OpCall, int] = {}
    matches = _match_all(steps, recorded)
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
                    "phase", "position")
    }  # fmt: skip
    windows, matched, offset = [], [], 0
    for step, (rows, found) in zip(steps, matches):
        matched.append(float((found >= 0).mean()) if len(found) else 0.0)
        position = np.full(len(step), -1, np.int64)
        position[rows] = found
        known = position >= 0
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
    timeline = Timeline(
        names=tuple(names),
        calls=tuple(calls),
        host=host,
        kernels=no_kernels(),
        steps=np.array(windows, np.int64).reshape(-1, 2),
        step_names=tuple(f"step {i + 1}" for i in range(len(windows))),
        device=device,
    )
    fraction = float(np.median(matched)) if matched else 0.0
    return CpuCapture(timeline, joined["position"].astype(np.int64), tuple(recorded), fraction)


def _match_all(steps: Sequence[RawEvents], recorded: Sequence[StepOp]) -> list[tuple[Int64, Int64]]:
    """Per step: candidate rows, and the recorded op that each is."""
    recorded_names = [op.call.name for op in recorded]
    vocabulary = set(recorded_names)
    matches = []
    for step in steps:
        rows = candidate_rows(step, vocabulary)
        matches.append((rows, match([step.names[i] for i in step.name[rows]], recorded_names)))
    return matches


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
            if name != op.call.name and RECORDED_AS.get(name) == op.call.name:
                result[index] = replace(op, call=replace(op.call, name=name), page_faults=0)
    return result


def _taken(
    values: NDArray[np.generic], position: Int64, known: NDArray[np.bool_]
) -> NDArray[np.generic]:
    if not len(values):
        return np.full(len(position), -1, np.int32)
    return np.where(known, values[np.maximum(position, 0)], -1)
