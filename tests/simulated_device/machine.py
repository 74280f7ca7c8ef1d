"""The clocks: a host that issues work, streams that carry it out, and what a profiler would see."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from simulated_device.hostility import HONEST, Hostility
from simulated_device.kernels import Vendor

# The thread of the program, autograd's, and one of the program's own, as a trace numbers them.
MAIN, AUTOGRAD, BESIDE = 1000, 1001, 1002


@dataclass(frozen=True)
class HostCosts:
    """Nanoseconds of the host. ``queue`` is how many kernels may be launched and not yet done.

    Attributes:
        python: before each op of the program.
        engine: of autograd's engine before each op of a backward pass.
        dispatch: of an op up to its first launch; ``returning`` after its last.
        view: of an op that launches nothing.
        launch: a launch call.
        latency: from the return of a launch call to the earliest start of its kernel.
        synchronise: a call that waits, with nothing to wait for.
        event: what a profiler adds for each op and each call that it records.
        watching: gobrrr's, before and after a module's call that it watches and at a step's end.
    """

    python: int = 2_000
    engine: int = 1_000
    dispatch: int = 4_000
    returning: int = 500
    view: int = 1_000
    launch: int = 3_000
    latency: int = 2_000
    synchronise: int = 1_000
    event: int = 0
    watching: int = 0
    queue: int = 1000


@dataclass(frozen=True)
class Ran:
    """One stretch of device work, as it truly was; its launch call returned at ``called_ns``."""

    name: str
    op: str
    start_ns: int
    end_ns: int
    stream: int
    cat: str = "kernel"
    called_ns: int = 0


@dataclass(frozen=True)
class Did:
    """What the program's thread truly did for a while, by the leaf that it is of."""

    leaf: str
    start_ns: int
    end_ns: int


@dataclass
class Event:
    """A moment on a stream."""

    time_ns: int


@dataclass
class Machine:
    """Host clock, streams, launch queue; ``trace`` collects events while a profiler is open.

    ``did`` and ``ran`` are the truth of host and device, whatever is profiled. ``timed`` are the
    blocks of timed steps, each as the device's times of its marks; ``profiles`` the ends of
    profiles.
    """

    vendor: Vendor
    costs: HostCosts
    hostile: Hostility = HONEST
    now_ns: int = 1_000_000
    stream: int = 0
    free_ns: dict[int, int] = field(default_factory=dict)
    ran: list[Ran] = field(default_factory=list)
    did: list[Did] = field(default_factory=list)
    timed: list[list[int]] = field(default_factory=list)
    profiles: list[int] = field(default_factory=list)
    loading: bool = False
    beside: bool = False
    trace: list[dict[str, Any]] | None = None
    _in_flight: deque[int] = field(default_factory=deque)
    _correlation: int = 0
    _external: int = 0
    _records: int = 0
    _calls: int = 0

    def __post_init__(self) -> None:
        self.stream = self.vendor.default_stream

    def start_profile(self) -> None:
        """Collect events from now on."""
        self.trace, self._records, self._calls = [], 0, 0

    def end_profile(self) -> list[dict[str, Any]]:
        """The events collected."""
        events, self.trace = self.trace or [], None
        self.profiles.append(self.now_ns)
        return events

    def advance(self, ns: int, leaf: str = "python") -> None:
        """Let the host's clock run, with what counts as ``leaf`` of overhead."""
        if self.profiles and self.trace is None:
            ns = round(ns * self.hostile.residue)
        self._until(self.now_ns + ns, leaf)

    def _until(self, end_ns: int, leaf: str) -> None:
        if end_ns > self.now_ns and not self.beside:
            leaf = "data_loading" if self.loading else leaf
            self.did.append(Did(f"overhead.{leaf}", self.now_ns, end_ns))
        self.now_ns = max(self.now_ns, end_ns)

    def new_op(self) -> int:
        """An identifier for an op that begins."""
        if self.trace is not None:
            self.advance(self.hostile.profiling.before)
        self._external += 1
        return self._external

    def host_event(
        self, cat: str, name: str, start_ns: int, thread: int = MAIN, **args: Any
    ) -> None:
        """Keep a span of the host that ends now."""
        if self.trace is not None:
            self.trace.append(
                {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": thread,
                 "ts": start_ns / 1000, "dur": (self.now_ns - start_ns) / 1000, "args": args}
            )  # fmt: skip
            if cat == "cpu_op":
                self.advance(self.hostile.profiling.after)

    def recorded(self, ns: int, *, call: bool = False) -> int:
        """What an op, or a call of the runtime, takes with what a profiler adds within it."""
        if self.trace is None:
            return ns
        added = self.hostile.profiling
        return ns + self.costs.event + (added.call if call else added.inside)

    def call(self, name: str, start_ns: int, thread: int, external: int | None) -> int:
        """Keep a call of the runtime that ends now; returns its correlation id."""
        self._correlation += 1
        args = {"cbid": 211, "correlation": self._correlation}
        if external is not None:
            args["External id"] = external
        self.host_event(self.vendor.runtime_category, name, start_ns, thread, **args)
        if self.trace is not None:
            self.advance(self.hostile.profiling.around)
        return self._correlation

    def launch(
        self, name: str, ns: int, *, op: str, thread: int = MAIN, external: int | None = None,
        stream: int | None = None, call: str = "LaunchKernel", cat: str = "kernel",
        call_ns: int | None = None, **args: Any,
    ) -> None:  # fmt: skip
        """Call the runtime for a kernel, copy or memset, which runs when the stream gets to it."""
        start_ns = self.now_ns
        self._wait_for_queue()
        self.stall()
        wanted_ns = self.costs.launch if call_ns is None else call_ns
        self.advance(self.recorded(wanted_ns, call=True), "launch")
        correlation = self.call(self.vendor.call_named(call), start_ns, thread, external)
        self.run(name, ns, op, correlation, stream=stream, external=external, cat=cat, **args)

    def run(
        self, name: str, ns: int, op: str, correlation: int, *, stream: int | None = None,
        external: int | None = None, cat: str = "kernel", gap_ns: int | None = None, **args: Any,
    ) -> None:  # fmt: skip
        """Put work on a stream, launched by a call that has returned.

        ``gap_ns``: to the work before it that it is queued behind, if not the device's usual.
        """
        stream = self.stream if stream is None else stream
        gap_ns = self.hostile.gap_ns if gap_ns is None else gap_ns
        free_ns = self.free_ns[stream] + gap_ns if stream in self.free_ns else 0
        begins = max(free_ns, self.now_ns + self.costs.latency)
        if cat == "kernel":
            ns = self.hostile.length_ns(ns, begins, self.trace is not None)
        ends = begins + ns
        self.free_ns[stream] = ends
        self._in_flight.append(ends)
        self.ran.append(Ran(name, op, begins, ends, stream, cat, self.now_ns))
        if self.trace is None:
            return
        record = self.hostile.record(self._records, begins, ns)
        self._records += 1
        if record is not None:
            device = self.hostile.device
            given = {"device": device, "stream": stream, "correlation": correlation, **args}
            if external is not None:
                given["External id"] = external
            self.trace.append(
                {"ph": "X", "cat": cat, "name": name, "pid": device, "tid": stream,
                 "ts": record[0], "dur": record[1], "args": given}
            )  # fmt: skip

    def stall(self) -> None:
        """The profiler asks for memory within a launch call of the program, once."""
        if self.trace is None or not self.hostile.stall_ns:
            return
        self._calls += 1
        if self._calls == self.hostile.stalled_call:
            start_ns = self.now_ns
            self.advance(self.hostile.stall_ns, "launch")
            if self.hostile.stall_told:
                self.trace.append(
                    {"ph": "X", "cat": "overhead", "name": "Activity Buffer Request", "pid": -1,
                     "tid": 0, "ts": start_ns / 1000, "dur": self.hostile.stall_ns / 1000,
                     "args": {}}
                )  # fmt: skip

    def _wait_for_queue(self) -> None:
        while self._in_flight and self._in_flight[0] <= self.now_ns:
            self._in_flight.popleft()
        if len(self._in_flight) >= self.costs.queue:
            self._until(self._in_flight[len(self._in_flight) - self.costs.queue], "launch")

    def wait(
        self, name: str, *, streams: tuple[int, ...] | None = None, thread: int = MAIN,
        external: int | None = None,
    ) -> None:  # fmt: skip
        """A call that returns when the streams (all, if none are named) are empty."""
        start_ns = self.now_ns
        wanted = self.free_ns if streams is None else streams
        self.advance(self.recorded(self.costs.synchronise, call=True), "synchronisation")
        self._until(max((self.free_ns.get(stream, 0) for stream in wanted), default=0),
                    "synchronisation")  # fmt: skip
        self.call(self.vendor.call_named(name), start_ns, thread, external)

    def hold(self, until_ns: int) -> None:
        """The host waits in a call until then."""
        self._until(until_ns, "synchronisation")

    def record_event(self) -> Event:
        """The moment when the current stream gets to what was put on it last."""
        return Event(max(self.free_ns.get(self.stream, 0), self.now_ns))

    def stream_waits(self, event: Event, stream: int | None = None) -> None:
        """What is put on a stream from now on starts after the event."""
        stream = self.stream if stream is None else stream
        self.free_ns[stream] = max(self.free_ns.get(stream, 0), event.time_ns)
