"""The clocks: a host that issues work, streams that carry it out, and what a profiler would see."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from simulated_device.kernels import Vendor

# The thread of the program and autograd's, as a trace numbers them.
MAIN, AUTOGRAD = 1000, 1001


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
    queue: int = 1000


@dataclass(frozen=True)
class Ran:
    """One stretch of device work, as it truly was."""

    name: str
    op: str
    start_ns: int
    end_ns: int
    stream: int


@dataclass
class Event:
    """A moment on a stream."""

    time_ns: int


@dataclass
class Machine:
    """Host clock, streams, launch queue; ``trace`` collects events while a profiler is open."""

    vendor: Vendor
    costs: HostCosts
    now_ns: int = 1_000_000
    stream: int = 0
    free_ns: dict[int, int] = field(default_factory=dict)
    ran: list[Ran] = field(default_factory=list)
    trace: list[dict[str, Any]] | None = None
    _in_flight: deque[int] = field(default_factory=deque)
    _correlation: int = 0
    _external: int = 0

    def __post_init__(self) -> None:
        self.stream = self.vendor.default_stream

    def advance(self, ns: int) -> None:
        """Let the host's clock run."""
        self.now_ns += ns

    def new_op(self) -> int:
        """An identifier for an op that begins."""
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

    def recorded(self, ns: int) -> int:
        """What something on the host takes, with what a profiler adds to it."""
        return ns + (self.costs.event if self.trace is not None else 0)

    def call(self, name: str, start_ns: int, thread: int, external: int | None) -> int:
        """Keep a call of the runtime that ends now; returns its correlation id."""
        self._correlation += 1
        args = {"cbid": 211, "correlation": self._correlation}
        if external is not None:
            args["External id"] = external
        self.host_event("cuda_runtime", name, start_ns, thread, **args)
        return self._correlation

    def launch(
        self, name: str, ns: int, *, op: str, thread: int = MAIN, external: int | None = None,
        stream: int | None = None, call: str = "LaunchKernel", cat: str = "kernel",
        call_ns: int | None = None, **args: Any,
    ) -> None:  # fmt: skip
        """Call the runtime for a kernel, copy or memset, which runs when the stream gets to it."""
        start_ns = self.now_ns
        self._wait_for_queue()
        self.advance(self.recorded(self.costs.launch if call_ns is None else call_ns))
        correlation = self.call(self.vendor.runtime + call, start_ns, thread, external)
        self.run(name, ns, op, correlation, stream=stream, external=external, cat=cat, **args)

    def run(
        self, name: str, ns: int, op: str, correlation: int, *, stream: int | None = None,
        external: int | None = None, cat: str = "kernel", **args: Any,
    ) -> None:  # fmt: skip
        """Put work on a stream, launched by a call that has returned."""
        stream = self.stream if stream is None else stream
        begins = max(self.free_ns.get(stream, 0), self.now_ns + self.costs.latency)
        ends = begins + ns
        self.free_ns[stream] = ends
        self._in_flight.append(ends)
        self.ran.append(Ran(name, op, begins, ends, stream))
        if self.trace is not None:
            given = {"device": 0, "stream": stream, "correlation": correlation, **args}
            if external is not None:
                given["External id"] = external
            self.trace.append(
                {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": stream,
                 "ts": begins / 1000, "dur": ns / 1000, "args": given}
            )  # fmt: skip

    def _wait_for_queue(self) -> None:
        while self._in_flight and self._in_flight[0] <= self.now_ns:
            self._in_flight.popleft()
        if len(self._in_flight) >= self.costs.queue:
            self.now_ns = max(self.now_ns, self._in_flight[len(self._in_flight) - self.costs.queue])

    def wait(
        self, name: str, *, streams: tuple[int, ...] | None = None, thread: int = MAIN,
        external: int | None = None,
    ) -> None:  # fmt: skip
        """A call that returns when the streams (all, if none are named) are empty."""
        start_ns = self.now_ns
        wanted = self.free_ns if streams is None else streams
        self.advance(self.recorded(self.costs.synchronise))
        self.now_ns = max([self.now_ns, *(self.free_ns.get(stream, 0) for stream in wanted)])
        self.call(self.vendor.runtime + name, start_ns, thread, external)

    def record_event(self) -> Event:
        """The moment when the current stream gets to what was put on it last."""
        return Event(max(self.free_ns.get(self.stream, 0), self.now_ns))

    def stream_waits(self, event: Event, stream: int | None = None) -> None:
        """What is put on a stream from now on starts after the event."""
        stream = self.stream if stream is None else stream
        self.free_ns[stream] = max(self.free_ns.get(stream, 0), event.time_ns)
