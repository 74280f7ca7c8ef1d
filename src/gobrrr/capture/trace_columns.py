"""Events of a trace, chunk by chunk, into columns of integers: the only form that is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gobrrr.capture.trace_events import (
    NO_ARGS,
    NOTHING,
    Event,
    InexactTimesError,
    nanoseconds,
    time_texts,
)
from gobrrr.capture.trace_names import Route, route_of
from gobrrr.capture.trace_stream import Chunk, TraceHeader, TraceReader
from gobrrr.capture.trace_tagged import Tagged
from gobrrr.timeline.errors import InputError

Int64 = NDArray[np.int64]


class Numbering(dict[Any, int]):
    """Distinct keys, numbered in order of appearance: ``numbering[key]`` is the number."""

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number


class ThreadNumbering(dict[Any, int]):
    """(pid, tid) -> number. PyTorch 1.9 writes one thread as text here and as a number there."""

    def __init__(self) -> None:
        super().__init__()
        self.texts = Numbering()

    def __missing__(self, pair: tuple[Any, Any]) -> int:
        number = self[pair] = self.texts[str(pair[0]), str(pair[1])]
        return number


class _Routes(dict[str, Callable[[Event], None]]):
    """Category -> where to append its events; decided once per category."""

    def __init__(self, lists: dict[Route, list[Any]]) -> None:
        super().__init__()
        self._lists = lists

    def __missing__(self, category: str) -> Callable[[Event], None]:
        append = self[category] = self._lists[route_of(category)].append
        return append


class _TaggedRoutes(dict[type, Callable[[Any], None]]):
    """Class of events by category -> where to append them."""

    def __init__(self, lists: dict[Route, list[Any]]) -> None:
        super().__init__()
        self._lists = lists

    def __missing__(self, category: type[Tagged]) -> Callable[[Any], None]:
        append = self[category] = self._lists[category.route].append
        return append


class Growing:
    """Columns that grow by a block per chunk; ``column(name)`` joins them once."""

    def __init__(self, **dtypes: Any) -> None:
        self._dtypes = dtypes
        self._blocks: dict[str, list[NDArray[Any]]] = {name: [] for name in dtypes}

    def add(self, **columns: Any) -> None:
        """One block: an array or list per column, of equal length."""
        for name, values in columns.items():
            self._blocks[name].append(np.asarray(values, self._dtypes[name]))

    def column(self, name: str) -> NDArray[Any]:
        """The whole column."""
        blocks = self._blocks[name]
        if len(blocks) != 1:
            joined = np.concatenate(blocks) if blocks else np.empty(0, self._dtypes[name])
            self._blocks[name] = blocks = [joined.astype(self._dtypes[name], copy=False)]
        return blocks[0]

    def take(self, index: NDArray[Any]) -> None:
        """Keeps the rows of ``index``, in its order."""
        for name in self._dtypes:
            self._blocks[name] = [self.column(name)[index]]

    def __len__(self) -> int:
        return len(self.column(next(iter(self._dtypes))))


@dataclass
class TraceColumns:
    """All that a trace says, as columns. -1 stands for what an event does not carry.

    ``host.key`` numbers ``keys`` (name, raw shapes, raw types, raw strides, raw values) of
    operators; ``host.stack`` numbers ``stacks``; ``host.thread`` numbers ``threads``; ``route`` is
    a ``Route``. ``device.collective`` numbers ``collectives``.
    """

    header: TraceHeader
    names: Numbering = field(default_factory=Numbering)
    keys: Numbering = field(default_factory=Numbering)
    stacks: Numbering = field(default_factory=Numbering)
    threads: ThreadNumbering = field(default_factory=ThreadNumbering)
    collectives: Numbering = field(default_factory=Numbering)
    host: Growing = field(
        default_factory=lambda: Growing(
            start=np.int64, end=np.int64, route=np.uint8, name=np.int32, thread=np.int32,
            correlation=np.int64, external=np.int64, sequence=np.int64,
            key=np.int32, stack=np.int32, collective=np.int32,
        )
    )  # fmt: skip
    device: Growing = field(
        default_factory=lambda: Growing(
            start=np.int64, end=np.int64, route=np.uint8, name=np.int32, device=np.int64,
            stream=np.int64, correlation=np.int64, external=np.int64, bytes=np.int64,
            collective=np.int32,
        )
    )  # fmt: skip
    flows: Growing = field(
        default_factory=lambda: Growing(
            start=np.int64, route=np.uint8, begins=np.uint8, id=np.int64, thread=np.int32
        )
    )
    events: int = 0
    device_ids: Numbering = field(default_factory=Numbering)
    stream_ids: Numbering = field(default_factory=Numbering)
    other_ids: Numbering = field(default_factory=Numbering)
    ignored: dict[str, int] = field(default_factory=dict)

    def ignore(self, why: str, count: int) -> None:
        """Counts events that were left out, by the reason that the user will read."""
        if count:
            self.ignored[why] = self.ignored.get(why, 0) + count


def read_columns(path: Path, launch_flows: bool = False) -> TraceColumns:
    """Reads a whole trace file.

    ``launch_flows``: keep the arrows from calls to device work as well. They say what correlation
    ids say, so a trace is read again with them only if device work without an id turns up.

    Raises ``InputError``.
    """
    reader = TraceReader(path, launch_flows=launch_flows)
    columns = TraceColumns(reader.header)
    unread = {Route.DROP, Route.FOREIGN}
    if not launch_flows:
        unread.add(Route.LAUNCH_FLOW)
    skipped = 0
    for chunk in reader.chunks():
        try:
            skipped += _add_chunk(columns, chunk, reader.exact, unread)
        except InexactTimesError:
            reader.exact = True
            again = replace(chunk, events=chunk.again(), tagged=False)
            skipped += _add_chunk(columns, again, True, unread)
    columns.events = reader.events_read
    if columns.events == 0:
        raise InputError(f"{path}: holds no events; was the profiler stopped before any step ran?")
    if skipped and (columns.device.column("correlation") == -1).any():
        return read_columns(path, launch_flows=True)
    return columns


def _add_chunk(columns: TraceColumns, chunk: Chunk, exact: bool, unread: set[Route]) -> int:
    """Adds the events of a chunk; returns how many arrows were left out."""
    lists: dict[Route, list[Any]] = {route: [] for route in Route}
    if chunk.tagged:
        classes = _TaggedRoutes(lists)
        for event in chunk.events:
            classes[type(event)](event)
    else:
        routes = _Routes(lists)
        for event in chunk.events:
            routes[event.cat](event)
    # Times first: an exception must leave no half of a chunk behind.
    timed = {
        route: _timed(route, lists[route], exact)
        for route in Route
        if lists[route] and route not in unread
    }
    for event in lists[Route.FOREIGN]:
        category = event.category if isinstance(event, Tagged) else event.cat
        columns.ignore(f"{category.split('_')[0].upper()} events are not read", 1)
    for route, (events, start, end, damaged) in timed.items():
        columns.ignore("events have no usable time (absent, negative or out of range)", damaged)
        if route in (Route.LAUNCH_FLOW, Route.BACKWARD_FLOW):
            _add_flows(columns, route, events, start)
        elif route in (Route.KERNEL, Route.COPY, Route.MEMSET):
            _add_device(columns, route, events, start, end)
        else:
            _add_host(columns, route, events, start, end)
    return len(lists[Route.LAUNCH_FLOW]) if Route.LAUNCH_FLOW in unread else 0


def _timed(route: Route, events: list[Any], exact: bool) -> tuple[list[Any], Int64, Int64, int]:
    """Events that last, with start and end in ns, and how many had to be left out."""
    flow = route in (Route.LAUNCH_FLOW, Route.BACKWARD_FLOW)
    phases = ("s", "f", "t") if flow else ("X",)
    if not {event.ph for event in events}.issubset(phases):
        events = [event for event in events if event.ph in phases]
    starts: Sequence[Any] = [event.ts for event in events]
    durations: Sequence[Any] = [event.dur for event in events]
    if exact:
        starts, durations = time_texts(starts), time_texts(durations)
    start, good = nanoseconds(starts)
    if flow:
        end = start
    else:
        duration, lasting = nanoseconds(durations, missing_ns=0)
        good &= lasting & (duration >= 0)
        end = start + duration
    if good.all():
        return events, start, end, 0
    kept = [event for event, keep in zip(events, good.tolist()) if keep]
    return kept, start[good], end[good], len(events) - len(kept)


def _add_flows(columns: TraceColumns, route: Route, events: list[Any], start: Int64) -> None:
    threads = columns.threads
    columns.flows.add(
        start=start,
        route=np.full(len(events), route),
        begins=[event.ph == "s" for event in events],
        id=_identifiers([event.id for event in events], columns.other_ids),
        thread=[threads[event.pid, event.tid] for event in events],
    )


def _identifiers(values: list[Any], others: Numbering) -> Int64:
    """Identifiers as integers; -1 where absent. What is no integer gets a number of its own."""
    try:
        column = np.array(values)
        if column.dtype == np.int64:
            return column
    except (OverflowError, ValueError):
        pass
    return np.array([_identifier(value, others) for value in values], np.int64)


def _identifier(value: Any, others: Numbering) -> int:
    if value is None:
        return -1
    if isinstance(value, str):
        try:
            value = int(value, 0)
        except ValueError:
            return -2 - others[value]
    if isinstance(value, float):
        if not value.is_integer():
            return -2 - others[value]
        value = int(value)
    return int(value) if -(2**63) <= value < 2**63 else -2 - others[value]


def _sizes(values: list[Any]) -> Int64:
    """Counts and byte sizes; -1 where absent or senseless."""
    try:
        column = np.array(values)
        if column.dtype == np.int64:
            known: Int64 = np.maximum(column, -1)
            return known
    except (OverflowError, ValueError):
        pass
    return np.array(
        [
            int(v) if isinstance(v, (int, float)) and 0 <= v < 2**62 else -1
            for v in (float(v) if isinstance(v, str) and v.isdigit() else v for v in values)
        ],
        np.int64,
    )


def _add_device(
    columns: TraceColumns, route: Route, events: list[Any], start: Int64, end: Int64
) -> None:
    arguments = [event.args or NO_ARGS for event in events]
    names = columns.names
    columns.device.add(
        start=start,
        end=end,
        route=np.full(len(events), route),
        name=[names[event.name] for event in events],
        device=[
            columns.device_ids[event.pid if args.device is None else args.device]
            for event, args in zip(events, arguments)
        ],
        stream=[
            columns.stream_ids[event.tid if args.stream is None else args.stream]
            for event, args in zip(events, arguments)
        ],
        correlation=_identifiers([args.correlation for args in arguments], columns.other_ids),
        external=_externals(columns, arguments),
        bytes=_sizes([args.bytes for args in arguments]),
        collective=_collectives(columns, arguments),
    )


def _externals(columns: TraceColumns, arguments: list[Any]) -> Int64:
    newer = _identifiers([args.external for args in arguments], columns.other_ids)
    if (newer != -1).all():
        return newer
    older = _identifiers([args.external_old for args in arguments], columns.other_ids)
    return np.where(newer == -1, older, newer)


def _collectives(columns: TraceColumns, arguments: list[Any]) -> NDArray[np.int32]:
    """The number of each event's collective, -1 for the many that are none."""
    known = columns.collectives
    if {args.collective for args in arguments} == {None}:
        return np.full(len(arguments), -1, np.int32)
    return np.array(
        [
            -1
            if not args.collective
            else known[
                args.collective, args.elements_in, args.elements_out, args.dtype,
                args.group_size, args.group,
            ]
            for args in arguments
        ],
        np.int32,
    )  # fmt: skip


def _call_keys(columns: TraceColumns, name: list[int], arguments: list[Any]) -> NDArray[np.int32]:
    """The number of each operator call, equal for equal raw arguments."""
    keys = columns.keys
    # Neither before PyTorch 1.13, and then both are absent from all.
    if {a.strides is NOTHING and a.concrete is NOTHING for a in arguments} != {True}:
        numbers = [
            keys[n, bytes(a.dims), bytes(a.types), bytes(a.strides), bytes(a.concrete)]
            for n, a in zip(name, arguments)
        ]
    else:
        numbers = [
            keys[n, bytes(a.dims), bytes(a.types), b"", b""] for n, a in zip(name, arguments)
        ]
    return np.array(numbers, np.int32)


def _add_host(
    columns: TraceColumns, route: Route, events: list[Any], start: Int64, end: Int64
) -> None:
    count = len(events)
    absent = np.full(count, -1)
    names, threads = columns.names, columns.threads
    name = [names[event.name] for event in events]
    correlation = external = sequence = key = stack = collective = absent
    if route is Route.RUNTIME:
        arguments = [event.args or NO_ARGS for event in events]
        correlation = _identifiers([args.correlation for args in arguments], columns.other_ids)
    elif route is Route.OP or route is Route.ANNOTATION:
        arguments = [event.args or NO_ARGS for event in events]
        external = _externals(columns, arguments)
        sequence = _identifiers([args.sequence for args in arguments], columns.other_ids)
        key = _call_keys(columns, name, arguments)
        stacks = columns.stacks
        stack = np.array(
            [-1 if a.stack is NOTHING else stacks[bytes(a.stack)] for a in arguments], np.int32
        )
        collective = _collectives(columns, arguments)
    columns.host.add(
        start=start, end=end, route=np.full(count, route), name=name,
        thread=[threads[event.pid, event.tid] for event in events],
        correlation=correlation, external=external,
        sequence=sequence, key=key, stack=stack,
        collective=collective,
    )  # fmt: skip
