"""What is kept of one rank's attributed steps, as Arrow tables."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gobrrr.attribution.attributed import AttributedOp
from gobrrr.attribution.collectives import collective_name
from gobrrr.attribution.leaves import LEAVES, top_levels
from gobrrr.attribution.recorded import RecordedDevice, RecordedLane
from gobrrr.diagnosis.assemble import idle_rows
from gobrrr.diagnosis.tables import op_rows
from gobrrr.fleet.schema import (
    COLLECTIVES,
    IDLE,
    LEAF_COLUMNS,
    LINES,
    MEANS,
    OPS,
    STEPS,
    leaf_column,
)
from gobrrr.timeline import intervals
from gobrrr.timeline.data import PHASE_NAMES, KernelKind, Timeline
from gobrrr.timeline.names import plain_name

# What a kernel pays however little it does is overhead, but the device is not idle.
_NOT_IDLE = "overhead.kernel_fixed_cost"
_LAYER = re.compile(r"(?:(?<=[._])|^)\d+(?=\.|$)")


def rank_tables(
    timeline: Timeline, ran: RecordedDevice | RecordedLane, host: str | None
) -> dict[str, pa.Table]:
    """Every table of ``schema.MAPPED`` for one rank.

    Args:
        timeline: as it was read.
        ran: its steps, attributed: of a device, or of the processor where there is none.
        host: where the rank ran; ``None``: unknown.
    """
    on_device = isinstance(ran, RecordedDevice)
    windows = ran.found.attribution.windows if isinstance(ran, RecordedDevice) else ()
    mean_s = {leaf: ns * 1e-9 for leaf, ns in ran.step.leaves_ns.items()}
    steps = len(timeline.steps)
    rows = _Rows(host)
    return {
        "steps": rows.table(STEPS, _steps(timeline, windows)),
        "ops": rows.table(OPS, _ops(ran)),
        "idle": rows.table(IDLE, _idle(windows or [ran.step.leaves_ns] * steps)),
        "lines": rows.table(LINES, _lines(ran)),
        "collectives": rows.table(
            COLLECTIVES, _collectives(ran) if isinstance(ran, RecordedDevice) else {}
        ),
        "means": rows.table(
            MEANS,
            {
                "device": [plain_name(timeline.device.name)],
                "world_size": [timeline.world_size],
                "steps": [steps],
                "s": [sum(mean_s.values())],
                "on_device": [on_device],
                **{leaf_column(leaf): [mean_s[leaf]] for leaf in LEAVES},
            },
        ),
    }


class _Rows:
    """Columns -> a table of a schema; the host of the rank in every row."""

    def __init__(self, host: str | None) -> None:
        self._host = host

    def table(self, schema: pa.Schema, columns: Mapping[str, Any]) -> pa.Table:
        if not columns:
            return schema.empty_table()
        length = len(next(iter(columns.values())))
        known = {"host": [self._host] * length, **columns}
        arrays = []
        for field in schema:
            values = known[field.name]
            arrays.append(values if isinstance(values, pa.Array) else pa.array(values, field.type))
        return pa.table(arrays, schema=schema)


def _steps(timeline: Timeline, windows: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    count = len(timeline.steps)
    start, end = timeline.steps[:, 0], timeline.steps[:, 1]
    columns: dict[str, Any] = {
        "step": np.arange(count),
        "name": [plain_name(name) for name in timeline.step_names],
        "start_ns": start,
        "end_ns": end,
        "s": (end - start) * 1e-9,
    }
    if not windows:
        unknown = [None] * count
        levels = {f"{level}_s": unknown for level in ("compute", "memory", "overhead")}
        return {**columns, **levels, **dict.fromkeys(LEAF_COLUMNS, unknown)}
    sums = [top_levels(window) for window in windows]
    for level in ("compute", "memory", "overhead"):
        columns[f"{level}_s"] = [each[level] * 1e-9 for each in sums]
    for leaf in LEAVES:
        columns[leaf_column(leaf)] = [window[leaf] * 1e-9 for window in windows]
    return columns


def _idle(windows: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    found = [
        (step, leaf.removeprefix("overhead."), ns * 1e-9)
        for step, window in enumerate(windows)
        for leaf, ns in window.items()
        if leaf.startswith("overhead.") and leaf != _NOT_IDLE and ns > 0
    ]
    return dict(zip(("step", "cause", "s"), zip(*found))) if found else {}


def _lines(ran: RecordedDevice | RecordedLane) -> dict[str, Any]:
    rows = idle_rows(ran.step.idle)
    return {
        "cause": [row.cause for row in rows],
        "source": [_plain(row.source) for row in rows],
        "detail": [_plain(row.detail) for row in rows],
        "s": [row.time_s for row in rows],
    }


def _plain(text: str | None) -> str | None:
    return plain_name(text) if text else None


def _ops(ran: RecordedDevice | RecordedLane) -> dict[str, Any]:
    """Ops of one kind of module (``layers.*.mlp``) and phase, by shapes."""
    places: dict[tuple[str, str], list[AttributedOp]] = defaultdict(list)
    for item in ran.step.ops:
        places[_LAYER.sub("*", item.op.module), PHASE_NAMES[item.op.phase]].append(item)
    rows = [
        (module, phase, row)
        for (module, phase), items in places.items()
        for row in op_rows(items, ran.step.shares)
    ]
    rows.sort(key=lambda found: -found[2].time_s)
    return {
        "op": [plain_name(row.name) for _, _, row in rows],
        "shapes": [row.shapes for _, _, row in rows],
        "dtypes": [row.dtypes for _, _, row in rows],
        "module": [_plain(module) for module, _, _ in rows],
        "phase": [phase for _, phase, _ in rows],
        "class": [row.op_class for _, _, row in rows],
        "regime": [row.regime for _, _, row in rows],
        "count": [row.count for _, _, row in rows],
        "s": [row.time_s for _, _, row in rows],
        "roof_s": [row.roof_s for _, _, row in rows],
        "flops": [row.flops for _, _, row in rows],
        "bytes": [row.bytes for _, _, row in rows],
    }


def _collectives(ran: RecordedDevice) -> dict[str, Any]:
    timeline, kernels = ran.timeline, ran.timeline.kernels
    rows = np.flatnonzero(kernels.kind == KernelKind.COLLECTIVE)
    if not len(rows):
        return {}
    start, end = kernels.start_ns[rows], kernels.end_ns[rows]
    windows = timeline.steps
    window = np.searchsorted(windows[:, 1], start, side="right")
    inside = (start < windows[-1, 1]) & (end > windows[0, 0])
    step = np.minimum(window, len(windows) - 1)
    records = [
        timeline.collectives[i] if i >= 0 else None for i in kernels.collective[rows].tolist()
    ]
    number = np.full(len(rows), -1) if kernels.call_number is None else kernels.call_number[rows]
    moved = kernels.bytes_moved[rows]
    offsets, begins, ends, exposed = _exposed(ran, rows)
    return {
        "step": pa.array(step.astype(np.int32), pa.int32(), mask=~inside),
        "call": np.arange(len(rows), dtype=np.int32),
        "name": [plain_name(collective_name(timeline, row)) for row in rows.tolist()],
        "group": [_plain(None if record is None else record.group) for record in records],
        "group_size": [None if record is None else record.group_size for record in records],
        "sequence": pa.array(number.astype(np.int64), mask=number < 0),
        "bytes": pa.array(moved, mask=moved < 0),
        "start_ns": start,
        "end_ns": end,
        "s": (end - start) * 1e-9,
        "exposed_s": exposed * 1e-9,
        "exposed_from_ns": pa.ListArray.from_arrays(pa.array(offsets), pa.array(begins)),
        "exposed_to_ns": pa.ListArray.from_arrays(pa.array(offsets), pa.array(ends)),
    }


def _exposed(ran: RecordedDevice, rows: Any) -> tuple[Any, Any, Any, Any]:
    """Of each collective the stretches in which nothing else ran: offsets, begins, ends, sums."""
    owned = ran.found.owned
    place = np.full(len(ran.timeline.kernels), -1, np.int64)
    place[rows] = np.arange(len(rows))
    own = place[owned.row] >= 0
    call = place[owned.row[own]]
    pieces, _ = intervals.clip_to_windows(owned.start[own], owned.end[own], ran.timeline.steps)
    call = call[pieces.row]
    order = np.argsort(call, kind="stable")
    count = np.bincount(call, minlength=len(rows))
    offsets = np.concatenate(([0], np.cumsum(count))).astype(np.int32)
    length = (pieces.end - pieces.start).astype(np.float64)
    exposed = np.bincount(call, weights=length, minlength=len(rows))
    return offsets, pieces.start[order], pieces.end[order], exposed
