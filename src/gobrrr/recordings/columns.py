"""Events of a trace, chunk by chunk, into columns of integers: the only form that is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gobrrr.recordings.events import (
    NOTHING,
    Args,
    Event,
    InexactTimesError,
    nanoseconds,
    time_texts,
)
from gobrrr.recordings.names import Route, route_of
from gobrrr.recordings.numbers import Numbering, ThreadNumbering, identifiers, sizes
from gobrrr.recordings.stream import Chunk, TraceHeader, TraceReader
from gobrrr.recordings.tagged import Tagged
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.names import plain_name

Int64 = NDArray[np.int64]

# Between the raw arguments of an operator: no JSON contains it.
_BETWEEN = b"\0"
# Longer names (characters) are cut and longer arguments (bytes) are left out: neither an op over
# some ten thousand tensors nor a template of C++ comes near, and a stranger's file may.
LONGEST_NAME, LONGEST_ARGUMENTS = 8192, 1 << 20
_NO_ARGUMENTS = Args()


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

    ``host.key`` numbers ``keys`` (name and raw arguments: see ``calls``) of operators;
    ``host.stack`` numbers ``stacks``; ``host.thread`` numbers ``threads``; ``route`` is
    a ``Route``. ``collective`` numbers ``collectives``; ``number`` is its own in its group.
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
            key=np.int32, stack=np.int32, collective=np.int32, number=np.int64,
        )
    )  # fmt: skip
    device: Growing = field(
        default_factory=lambda: Growing(
            start=np.int64, end=np.int64, route=np.uint8, name=np.int32, device=np.int64,
            stream=np.int64, correlation=np.int64, external=np.int64, bytes=np.int64,
            collective=np.int32, number=np.int64,
        )
    )  # fmt: skip
    flows: Growing = field(
        default_factory=lambda: Growing(
            start=np.int64, route=np.uint8, begins=np.uint8, id=np.int64, thread=np.int32
        )
    )
    stalls: Growing = field(
        default_factory=lambda: Growing(start=np.int64, end=np.int64, name=np.int32)
    )
    events: int = 0
    device_ids: Numbering = field(default_factory=Numbering)
    stream_ids: Numbering = field(default_factory=Numbering)
    other_ids: Numbering = field(default_factory=Numbering)
    ignored: dict[str, int] = field(default_factory=dict)

    def calls(self) -> list[tuple[Any, ...]]:
        """Of each of ``keys``: name, raw shapes, raw types, raw strides, raw values."""
        return [(name, *raw.split(_BETWEEN)) for name, raw in self.keys]

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
        # Before the next chunk is parsed: into memory that is still in the processor's cache.
        chunk.events.clear()
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
        columns.ignore(f"{category.split('_')[0].upper()} events are not supported", 1)
    for route, (events, start, end, damaged) in timed.items():
        columns.ignore("their time is missing, negative or out of range", damaged)
        if route in (Route.LAUNCH_FLOW, Route.BACKWARD_FLOW):
            _add_flows(columns, route, events, start)
        elif route in (Route.KERNEL, Route.COPY, Route.MEMSET):
            _add_device(columns, route, events, start, end)
        elif route is Route.STALL:
            columns.stalls.add(start=start, end=end, name=_names(columns, events))
        else:
            _add_host(columns, route, events, start, end)
    return len(lists[Route.LAUNCH_FLOW]) if Route.LAUNCH_FLOW in unread else 0


def _arguments(events: list[Any]) -> list[Any]:
    """The arguments of events; those of an event without any are absent."""
    return [event.args or _NO_ARGUMENTS for event in events]


def _timed(route: Route, events: list[Any], exact: bool) -> tuple[list[Any], Int64, Int64, int]:
    """Events that last, with start and end in ns, and how many had to be left out."""
    flow = route in (Route.LAUNCH_FLOW, Route.BACKWARD_FLOW)
    phases = {"s", "f", "t"} if flow else {"X"}
    if not phases.issuperset([event.ph for event in events]):
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
    kept = list(compress(events, good.tolist()))
    return kept, start[good], end[good], int((~good).sum())


def _add_flows(columns: TraceColumns, route: Route, events: list[Any], start: Int64) -> None:
    columns.flows.add(
        start=start,
        route=np.full(len(start), route),
        begins=[event.ph == "s" for event in events],
        id=identifiers([event.id for event in events], columns.other_ids),
        thread=_threads(columns, events),
    )


def _threads(columns: TraceColumns, events: list[Any]) -> NDArray[np.int32]:
    return columns.threads.column([e.pid for e in events], [e.tid for e in events])


def _names(columns: TraceColumns, events: list[Any]) -> NDArray[np.int32]:
    names = [event.name for event in events]
    if max(map(len, names), default=0) > LONGEST_NAME:
        names = [plain_name(name, LONGEST_NAME) for name in names]
    return columns.names.column(names)


def _add_device(
    columns: TraceColumns, route: Route, events: list[Any], start: Int64, end: Int64
) -> None:
    count = len(start)
    if not count:
        return
    arguments = _arguments(events)
    collective = _collectives(columns, arguments)
    columns.device.add(
        start=start,
        end=end,
        route=np.full(count, route),
        name=_names(columns, events),
        device=[
            columns.device_ids[event.pid if args.device is None else args.device]
            for event, args in zip(events, arguments)
        ],
        stream=[
            columns.stream_ids[event.tid if args.stream is None else args.stream]
            for event, args in zip(events, arguments)
        ],
        correlation=_correlations(columns, arguments),
        external=_externals(columns, arguments),
        bytes=sizes([args.bytes for args in arguments]),
        collective=collective,
        number=_call_numbers(columns, arguments, collective),
    )


def _correlations(columns: TraceColumns, arguments: list[Any]) -> Int64:
    return identifiers([args.correlation for args in arguments], columns.other_ids)


def _externals(columns: TraceColumns, arguments: list[Any]) -> Int64:
    newer = identifiers([args.external for args in arguments], columns.other_ids)
    if (newer != -1).all():
        return newer
    older = identifiers([args.external_old for args in arguments], columns.other_ids)
    return np.where(newer == -1, older, newer)


def _collectives(columns: TraceColumns, arguments: list[Any]) -> NDArray[np.int32]:
    """The number of each event's collective, -1 for the many that are none."""
    names = [args.collective for args in arguments]
    number = np.full(len(names), -1, np.int32)
    if names.count(None) < len(names):
        known = columns.collectives
        rows = [row for row, name in enumerate(names) if name]
        number[rows] = [known[_of_collective(arguments[row])] for row in rows]
    return number


def _of_collective(args: Any) -> tuple[Any, ...]:
    return (
        args.collective, args.elements_in, args.elements_out, args.dtype, args.group_size,
        args.group, args.group_ranks, args.group_described,
    )  # fmt: skip


def _call_numbers(
    columns: TraceColumns, arguments: list[Any], collective: NDArray[np.int32]
) -> Int64:
    """The number of each collective in its group; -1 for the many events that are none."""
    if (collective < 0).all():
        return np.full(len(collective), -1)
    return identifiers([args.call_number for args in arguments], columns.other_ids)


def _call_keys(
    columns: TraceColumns, name: NDArray[np.int32], arguments: list[Any]
) -> NDArray[np.int32]:
    """The number of each operator call, equal for equal raw arguments."""
    join = _BETWEEN.join
    raw = [join((args.dims, args.types, args.strides, args.concrete)) for args in arguments]
    if max(map(len, raw), default=0) > LONGEST_ARGUMENTS:
        unknown = join((b"",) * 4)
        columns.ignore(
            "their arguments are too long", sum(len(each) > LONGEST_ARGUMENTS for each in raw)
        )
        raw = [unknown if len(each) > LONGEST_ARGUMENTS else each for each in raw]
    return columns.keys.column(zip(name.tolist(), raw))


def _add_host(
    columns: TraceColumns, route: Route, events: list[Any], start: Int64, end: Int64
) -> None:
    count = len(start)
    if not count:
        return
    absent = np.full(count, -1)
    name = _names(columns, events)
    correlation = external = sequence = key = stack = collective = number = absent
    if route is Route.RUNTIME:
        correlation = _correlations(columns, _arguments(events))
    elif route is Route.OP or route is Route.ANNOTATION:
        arguments = _arguments(events)
        external = _externals(columns, arguments)
        sequence = identifiers([args.sequence for args in arguments], columns.other_ids)
        key = _call_keys(columns, name, arguments)
        stacks, raw = columns.stacks, [args.stack for args in arguments]
        if raw.count(NOTHING) < count:
            stack = np.array([-1 if a is NOTHING else stacks[bytes(a)] for a in raw], np.int32)
        collective = _collectives(columns, arguments)
        number = _call_numbers(columns, arguments, collective)
    columns.host.add(
        start=start, end=end, route=np.full(count, route), name=name,
        thread=_threads(columns, events),
        correlation=correlation, external=external,
        sequence=sequence, key=key, stack=stack,
        collective=collective, number=number,
    )  # fmt: skip
