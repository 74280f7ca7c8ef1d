"""Who launched what, and for which part of the program: links between a trace's columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gobrrr.recordings.columns import TraceColumns
from gobrrr.recordings.names import (
    MODULE_PREFIX,
    OPTIMIZER_PREFIX,
    Route,
    frame_source,
    is_annotation,
    is_backward,
    is_blocking_copy,
    runtime_kind,
    special_kind,
    stack_source,
)
from gobrrr.recordings.numbers import Numbering
from gobrrr.timeline.data import HostKind, Phase
from gobrrr.timeline.intervals import distinct
from gobrrr.timeline.nesting import nearest

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
UInt8 = NDArray[np.uint8]
Bool = NDArray[np.bool_]


def sort_columns(columns: TraceColumns) -> None:
    """Sorts the host by start, parents before children, and the device by start; links survive."""
    host, device = columns.host, columns.device
    host.take(np.lexsort((-host.column("end"), host.column("start"))))
    device.take(np.lexsort((device.column("end"), device.column("start"))))


def host_kinds(columns: TraceColumns, names: tuple[str, ...]) -> UInt8:
    """A ``HostKind`` for each host row, from its route and name."""
    route, name = columns.host.column("route"), columns.host.column("name")
    kind = np.full(len(route), HostKind.RUNTIME, np.uint8)
    by_route = {
        Route.OP: HostKind.OP,
        Route.PYTHON: HostKind.PYTHON,
        Route.ANNOTATION: HostKind.ANNOTATION,
    }
    for source, target in by_route.items():
        kind[route == source] = target
    table = np.zeros(len(names), np.uint8)
    is_runtime = route == Route.RUNTIME
    for number in distinct(name[is_runtime]).tolist():
        table[number] = runtime_kind(names[number])
    kind[is_runtime] = table[name[is_runtime]]
    special = np.full(len(names), 255, np.uint8)
    for number in distinct(name[~is_runtime]).tolist():
        found = special_kind(names[number])
        if found is None and is_annotation(names[number]):
            found = HostKind.ANNOTATION
        if found is not None:
            special[number] = found
    chosen = special[name]
    use = ~is_runtime & (chosen != 255)
    kind[use] = chosen[use]
    return kind


def match_launches(columns: TraceColumns) -> Int64:
    """The host row that launched each device row, -1 where none is found.

    By correlation id, which a call and its device work share (a graph's launch is shared by all
    its kernels); where a device row has none, by a flow arrow from the call to it.
    """
    host, device = columns.host, columns.device
    wanted = device.column("correlation")
    is_call = (host.column("route") == Route.RUNTIME) & (host.column("correlation") != -1)
    calls = np.flatnonzero(is_call)
    launch = _latest_before(
        host.column("correlation")[calls], host.column("start")[calls], wanted,
        device.column("start"),
    )  # fmt: skip
    launch = np.where(launch >= 0, calls[launch] if len(calls) else -1, -1)
    missing = (launch < 0) | (wanted == -1)
    launch[wanted == -1] = -1
    if missing.any() and len(columns.flows):
        launch[missing] = _match_by_flow(columns, np.flatnonzero(missing))
    return launch


def _latest_before(key: Int64, time: Int64, wanted: Int64, deadline: Int64) -> Int64:
    """For each wanted key: the row with it that is latest before the deadline, else its first.

    Identifiers repeat where traces were joined; device clocks may also run a little ahead.
    """
    if len(key) == 0:
        return np.full(len(wanted), -1, np.int64)
    order = np.lexsort((time, key))
    keys, times = key[order], time[order]
    first = np.searchsorted(keys, wanted, side="left")
    last = np.searchsorted(keys, wanted, side="right")
    found = last > first
    row = np.where(found, first, 0)
    repeated = np.flatnonzero(found & (last - first > 1))
    for i in repeated.tolist():
        low, high = int(first[i]), int(last[i])
        at = low + int(np.searchsorted(times[low:high], deadline[i], side="right")) - 1
        row[i] = max(at, low)
    return np.where(found, order[row], -1)


def _match_by_flow(columns: TraceColumns, rows: Int64) -> Int64:
    flows, host = columns.flows, columns.host
    is_launch = flows.column("route") == Route.LAUNCH_FLOW
    begins = is_launch & (flows.column("begins") == 1)
    ends = is_launch & (flows.column("begins") == 0)
    start = flows.column("start")
    arrows = dict(zip(start[ends].tolist(), flows.column("id")[ends].tolist()))
    tails = dict(
        zip(
            flows.column("id")[begins].tolist(),
            zip(start[begins].tolist(), flows.column("thread")[begins].tolist()),
        )
    )
    calls = np.flatnonzero(host.column("route") == Route.RUNTIME)
    at = {
        place: row
        for row, place in zip(
            calls.tolist(),
            zip(host.column("start")[calls].tolist(), host.column("thread")[calls].tolist()),
        )
    }
    found = []
    for time in columns.device.column("start")[rows].tolist():
        arrow = arrows.get(time)
        place = None if arrow is None else tails.get(arrow)
        found.append(-1 if place is None else at.get(place, -1))
    return np.array(found, np.int64)


def match_ops(columns: TraceColumns, launch: Int64, parent: Int64, kind: UInt8) -> Int64:
    """The innermost operator around each device row's launch; by external id without a launch."""
    enclosing = nearest(parent, kind == HostKind.OP)
    op = np.where(launch >= 0, enclosing[launch] if len(enclosing) else -1, -1)
    lost = np.flatnonzero(launch < 0)
    if len(lost):
        is_op = np.flatnonzero((kind == HostKind.OP) & (columns.host.column("external") != -1))
        external, wanted = columns.host.column("external")[is_op], columns.device
        # In PyTorch 1.12 the external id of device work repeats its correlation id: no operator's.
        usable = wanted.column("external")[lost] != wanted.column("correlation")[lost]
        found = _latest_before(
            external, columns.host.column("start")[is_op], wanted.column("external")[lost],
            wanted.column("start")[lost],
        )  # fmt: skip
        op[lost] = np.where((found >= 0) & usable, is_op[found] if len(is_op) else -1, -1)
    result: Int64 = op.astype(np.int64)
    return result


def mark_blocking_copies(
    columns: TraceColumns, names: tuple[str, ...], launch: Int64, kind: UInt8
) -> None:
    """Calls whose copy goes to or from pageable memory wait for it: they synchronise.

    But for those that return before it begins: a call after them waits (``item()``).
    """
    table = np.array([is_blocking_copy(text) for text in names], bool)
    blocking = (columns.device.column("route") == Route.COPY) & (launch >= 0)
    blocking &= table[columns.device.column("name")]
    blocking[blocking] = (
        columns.device.column("start")[blocking] < columns.host.column("end")[launch[blocking]]
    )
    kind[launch[blocking]] = HostKind.SYNCHRONISE


@dataclass(frozen=True)
class Program:
    """Which part of the program each host row belongs to (-1 or ``OTHER``: unknown)."""

    module: Int32
    source: Int32
    phase: UInt8


def locate(
    columns: TraceColumns, names: Numbering, texts: tuple[str, ...], parent: Int64, kind: UInt8
) -> Program:
    """Module path, line of the user's code and phase of every host row.

    ``names`` takes the new strings. A backward operator inherits the module and line of the
    forward operator with its autograd sequence number.
    """
    host = columns.host
    name, route = host.column("name"), host.column("route")
    is_module = _names_that(texts, lambda text: text.startswith(MODULE_PREFIX))[name]
    is_module &= route == Route.PYTHON
    module = _module_paths(names, texts, name, parent, is_module)
    source = _sources(columns, names, texts, parent)
    backward = nearest(parent, _names_that(texts, is_backward)[name] & (kind == HostKind.OP))
    lanes = _backward_threads(host.column("thread"), kind, parent, backward)
    in_backward = (backward >= 0) | lanes[host.column("thread")]
    is_optimizer = _names_that(texts, lambda text: text.startswith(OPTIMIZER_PREFIX))[name]
    in_optimizer = nearest(parent, is_optimizer) >= 0
    in_loader = nearest(parent, kind == HostKind.DATA_LOADING) >= 0
    in_op = nearest(parent, kind == HostKind.OP) >= 0
    phase = np.full(len(name), Phase.OTHER, np.uint8)
    phase[(in_op | (module >= 0)) & ~in_loader] = Phase.FORWARD
    phase[in_backward] = Phase.BACKWARD
    phase[in_optimizer] = Phase.OPTIMIZER
    forward = _forward_rows(columns, kind, phase)
    linked = nearest(parent, forward >= 0)
    origin = np.where(linked >= 0, forward[linked], -1) if len(linked) else linked
    inherits = (phase == Phase.BACKWARD) & (origin >= 0)
    for column in (module, source):
        fill = inherits & (column < 0)
        column[fill] = column[origin[fill]]
    return Program(module, source, phase)


def _names_that(texts: tuple[str, ...], test: Callable[[str], bool]) -> Bool:
    return np.array([test(text) for text in texts], np.bool_)


def _module_paths(
    names: Numbering, texts: tuple[str, ...], name: Int32, parent: Int64, is_module: Bool
) -> Int32:
    """``ResNet_0.Sequential_1.Conv2d_4``: the profiler's names of the enclosing modules."""
    enclosing = nearest(parent, is_module)
    rows = np.flatnonzero(is_module)
    paths: dict[int, str] = {}
    path_of = np.full(len(name), -1, np.int32)
    above = np.where(parent[rows] >= 0, enclosing[parent[rows]], -1)
    for row, outer in zip(rows.tolist(), above.tolist()):
        label = texts[name[row]][len(MODULE_PREFIX) :]
        prefix = paths.get(outer)
        path = label if prefix is None else f"{prefix}.{label}"
        paths[row] = path
        path_of[row] = names[path]
    return np.where(enclosing >= 0, path_of[enclosing], -1).astype(np.int32)


def _sources(
    columns: TraceColumns, names: Numbering, texts: tuple[str, ...], parent: Int64
) -> Int32:
    host = columns.host
    name, route, stack = host.column("name"), host.column("route"), host.column("stack")
    own = np.full(len(name), -1, np.int32)
    is_frame = route == Route.PYTHON
    table = np.full(len(texts), -1, np.int32)
    for number in distinct(name[is_frame]).tolist():
        line = frame_source(texts[number])
        if line is not None:
            table[number] = names[line]
    own[is_frame] = table[name[is_frame]]
    lines = [stack_source(text.decode("utf-8", "replace").strip('"')) for text in columns.stacks]
    numbers = np.array([-1 if line is None else names[line] for line in lines] + [-1], np.int32)
    has_stack = stack >= 0
    own[has_stack] = numbers[stack[has_stack]]
    found = nearest(parent, own >= 0)
    return np.where(found >= 0, own[found], -1).astype(np.int32)


def _backward_threads(thread: Int32, kind: UInt8, parent: Int64, backward: Int64) -> Bool:
    """Autograd's threads: those whose outermost operators are mostly autograd's own."""
    count = int(thread.max()) + 1 if len(thread) else 0
    outer = (kind == HostKind.OP) & (parent < 0)
    total = np.bincount(thread[outer], minlength=count)
    own = np.bincount(thread[outer & (backward >= 0)], minlength=count)
    result: Bool = (own > 0) & (2 * own > total)
    return result


def _forward_rows(columns: TraceColumns, kind: UInt8, phase: UInt8) -> Int64:
    """For each backward operator with a sequence number: the forward operator that made its node.

    Of several forward operators with one number the last is taken: the innermost, which ran.
    Without numbers, the ``fwdbwd`` arrows say it.
    """
    host = columns.host
    sequence = host.column("sequence")
    numbered = (sequence >= 0) & (kind == HostKind.OP)
    made = np.flatnonzero(numbered & (phase == Phase.FORWARD))
    used = np.flatnonzero(numbered & (phase == Phase.BACKWARD))
    forward = np.full(len(sequence), -1, np.int64)
    if len(made) and len(used):
        order = np.argsort(sequence[made], kind="stable")
        keys = sequence[made][order]
        at = np.searchsorted(keys, sequence[used], side="right") - 1
        hit = (at >= 0) & (keys[np.maximum(at, 0)] == sequence[used])
        forward[used[hit]] = made[order[at[hit]]]
    elif len(columns.flows):
        _follow_backward_flows(columns, kind, forward)
    return forward


def _follow_backward_flows(columns: TraceColumns, kind: UInt8, forward: Int64) -> None:
    flows, host = columns.flows, columns.host
    ops = np.flatnonzero(kind == HostKind.OP)
    places = zip(host.column("start")[ops].tolist(), host.column("thread")[ops].tolist())
    at = {place: row for row, place in zip(ops.tolist(), places)}
    mine = flows.column("route") == Route.BACKWARD_FLOW
    tails: dict[int, int] = {}
    arrows = zip(*(flows.column(key)[mine].tolist() for key in ("begins", "id", "start", "thread")))
    for begins, number, start, thread in sorted(arrows, reverse=True):
        row = at.get((start, thread), -1)
        if begins:
            tails[number] = row
        elif row >= 0 and tails.get(number, -1) >= 0:
            forward[row] = tails[number]
