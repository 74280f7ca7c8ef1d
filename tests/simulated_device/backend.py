"""The simulated device as gobrrr meets it: one object, put in front of the known backends."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch

from gobrrr.devices import backends
from gobrrr.devices.backend import DriverCalls
from gobrrr.devices.card import CardState
from gobrrr.devices.ceilings import Ceiling, Ceilings, MemoryLevel, Progress
from gobrrr.devices.identity import DeviceIdentity
from gobrrr.live.measurements import Measurements
from gobrrr.live.profiles import device_profile
from gobrrr.live.watch.call_watch import CallWatch
from gobrrr.live.window_log import WindowLog
from gobrrr.observe import sampler, source_lines
from simulated_device.accelerator import LIBRARY, Accelerator
from simulated_device.frames import FrameTracer
from simulated_device.machine import AUTOGRAD, MAIN, Event, Machine
from simulated_device.traces import write_trace

# The process's clock is another than the trace's.
CLOCK_AHEAD_NS = 12_345_678_901
_DTYPES = {8: ("float64",), 4: ("float32",), 2: ("bfloat16", "float16")}


def ceilings_of(gpu: Accelerator) -> Ceilings:
    """What the simulated device can do at best, as a sweep would find it."""
    vendor, costs = gpu.vendor, gpu.costs
    rows: dict[str, Ceiling] = {}

    def add(name: str, value: float, unit: str) -> None:
        rows[name] = Ceiling(name, value, unit, "measured", "the simulation's own figure")

    for size, dtypes in _DTYPES.items():
        for dtype in dtypes:
            add(f"matrix.{dtype}", vendor.matrix[size], "FLOP/s")
            add(f"vector.{dtype}", vendor.matrix[size] / 2, "FLOP/s")
            add(f"vector.{dtype}.multiply", vendor.matrix[size] / 4, "FLOP/s")
            add(f"vector.{dtype}.exp", vendor.matrix[size] / 32, "op/s")
    for pattern in ("read", "copy", "write", "triad"):
        add(f"memory.dram.{pattern}", vendor.bytes_per_s, "B/s")
    add("kernel.fixed", vendor.fixed_ns * 1e-9, "s")
    add("launch.latency", (costs.launch + costs.latency) * 1e-9, "s")
    add("synchronise", costs.synchronise * 1e-9, "s")
    add("copy.h2d", 5e10, "B/s")
    add("copy.d2h", 5e10, "B/s")
    add("host.dispatches", 1e9 / (costs.python + costs.dispatch + costs.launch), "op/s")
    level = MemoryLevel("dram", None, ((0.0, vendor.bytes_per_s),))
    return Ceilings(vendor.device, rows, (level,))


class _Timer:
    def __init__(self, gpu: Accelerator) -> None:
        self._gpu = gpu
        self._events: list[int] = []

    def start_block(self) -> None:
        self._gpu.synchronise()
        self._events = []
        self.mark()

    def mark(self) -> None:
        self._gpu.refuse_while_capturing()
        self._events.append(self._gpu.machine.record_event().time_ns)

    def end_block(self) -> list[int]:
        self._gpu.synchronise()
        self._gpu.machine.timed.append(self._events)
        return [after - before for before, after in zip(self._events, self._events[1:])]


class _Profiler:
    """Marks steps as ranges; ``kept`` is where the test finds the trace afterwards."""

    def __init__(self, backend: SimulatedBackend) -> None:
        self._backend = backend
        self._machine = backend.gpu.machine
        self.interrupted = False
        self._step = 0
        self._since_ns = 0
        self._frames: FrameTracer | None = None

    def start(self) -> None:
        self._backend.gpu.synchronise()
        self._machine.start_profile()
        if self._backend.with_stack:
            self._frames = FrameTracer(self._machine, LIBRARY, _thread_now)
            self._frames.start()
        self._since_ns = self._machine.now_ns

    def mark(self) -> None:
        self._backend.gpu._close_node()
        self._machine.host_event("user_annotation", f"ProfilerStep#{self._step}", self._since_ns)
        self._step += 1
        self._since_ns = self._machine.now_ns
        hostile = self._machine.hostile
        if self._step == hostile.stalled_step:
            self._machine.advance(hostile.held_ns)

    def stop(self, path: Path) -> None:
        self._backend.gpu.synchronise()
        self.mark()
        self._end_frames()
        events = self._machine.end_profile()
        if self._backend.blind:
            runtime = self._machine.vendor.runtime_category
            device = self._machine.hostile.device
            events = [e for e in events if e["pid"] != device and e["cat"] != runtime]
        if self._backend.kernels_hidden:
            hidden = self._machine.hostile.device
            events = [event for event in events if event["pid"] != hidden]
        write_trace(path, events, self._machine.vendor, self._machine.hostile.device + 1)
        self._backend.traces.append(json.loads(path.read_text()))

    def may_see_more(self) -> bool:
        blind, self._backend.blind = self._backend.blind, False
        return blind

    def _end_frames(self) -> None:
        if self._frames is not None:
            self._frames.stop()
            self._frames = None

    def abandon(self) -> None:
        self._end_frames()
        self._machine.trace = None


def _thread_now() -> int:
    return MAIN if torch._C._current_autograd_node() is None else AUTOGRAD


class _LineSampler:
    """Looks where the program is whenever the host's clock has moved by another interval."""

    INTERVAL_NS = 5_000

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._samples: list[sampler.LineSample] = []

    def start(self) -> None:
        plain = self._machine.advance

        def advance(ns: int, leaf: str = "python") -> None:
            begin_ns = self._machine.now_ns
            plain(ns, leaf)
            first = -(-begin_ns // self.INTERVAL_NS) * self.INTERVAL_NS
            moments = range(first, self._machine.now_ns, self.INTERVAL_NS)
            if moments and _thread_now() == MAIN:
                line = source_lines.blamed_line(sys._getframe(1))
                self._samples += [
                    sampler.LineSample(moment + CLOCK_AHEAD_NS, line) for moment in moments
                ]

        self._machine.advance = advance  # type: ignore[method-assign]

    def stop(self) -> list[sampler.LineSample]:
        self._machine.__dict__.pop("advance", None)
        return self._samples


class _Streams:
    """The stream after the collectives'."""

    def __init__(self, gpu: Accelerator) -> None:
        self._gpu = gpu
        self._side = gpu.vendor.collective_stream + 1

    def beside(self) -> AbstractContextManager[None]:
        return self._gpu.stream(self._side)

    def join(self) -> None:
        machine = self._gpu.machine
        machine.stream_waits(Event(machine.free_ns.get(self._side, 0)))


class _Meter:
    def __init__(self, gpu: Accelerator) -> None:
        self._gpu = gpu

    def held_bytes(self) -> int:
        return self._gpu.held_bytes()

    def start_peak(self) -> None:
        self._gpu.synchronise()
        self._gpu.peak_bytes = self._gpu.held_bytes()

    def peak_bytes(self) -> int:
        self._gpu.synchronise()
        return self._gpu.peak_bytes

    def driver_calls(self) -> DriverCalls:
        return self._gpu.driver_calls


class SimulatedBackend:
    """A ``Backend``. ``traces`` are the profiled steps so far, as they were written.

    ``blind``: its profiler sees neither calls nor kernels until it is asked if it may see more.
    ``kernels_hidden``: its profiler sees the host alone, as one without permission does.
    ``with_stack``: it writes Python's calls too.
    ``card_states``: what its driver says, in turn; then nothing.
    """

    IS_GPU = True
    MISSING: tuple[str, ...] = ()

    def __init__(self, gpu: Accelerator) -> None:
        self.gpu = gpu
        self.KINDS = (gpu.vendor.kind,)
        self.traces: list[dict[str, Any]] = []
        self.measured = 0
        self.blind = self.kernels_hidden = False
        self.with_stack = False
        self.others_bytes: int | None = None
        self.card_states: Iterator[CardState] = iter(())

    def install(self, monkeypatch: pytest.MonkeyPatch) -> SimulatedBackend:
        """Put it before all others until the test ends."""
        monkeypatch.setattr(backends, "BACKENDS", (self, *backends.BACKENDS))
        machine = self.gpu.machine
        monkeypatch.setattr(device_profile, "clock_ns", lambda: machine.now_ns + CLOCK_AHEAD_NS)
        monkeypatch.setattr(sampler, "LineSampler", lambda thread: _LineSampler(machine))
        for watched in ((CallWatch, "began"), (CallWatch, "ended"), (WindowLog, "ended")):
            monkeypatch.setattr(*watched, self._costly(getattr(*watched)))
        # What the real machine does beside a simulated clock is nothing to it.
        monkeypatch.setattr(Measurements, "mostly_waited", False)
        return self

    def _costly(self, watch: Callable[..., None]) -> Callable[..., None]:
        """What gobrrr does between the program's ops, with the time that it takes."""

        def watches(*args: Any, **kwargs: Any) -> None:
            self.gpu.machine.advance(self.gpu.costs.watching)
            watch(*args, **kwargs)

        return watches

    def identify(self) -> DeviceIdentity:
        vendor = self.gpu.vendor
        return DeviceIdentity(
            vendor.device, vendor.kind, vendor.memory_bytes, vendor.multiprocessors, None
        )

    def at(self, index: int) -> SimulatedBackend:
        return self

    def capturing(self) -> bool:
        return self.gpu._captured is not None

    def operator_threads(self, wanted: int | None) -> int:
        return 1

    def measure(self, device: DeviceIdentity, threads: int, progress: Progress) -> Ceilings:
        self.measured += 1
        return ceilings_of(self.gpu)

    def synchronise(self) -> None:
        if self.gpu.used:
            self.gpu.synchronise()

    def in_use(self) -> bool:
        return self.gpu.used

    def timer(self) -> _Timer:
        return _Timer(self.gpu)

    def profiler(self) -> _Profiler:
        return _Profiler(self)

    def streams(self) -> _Streams:
        return _Streams(self.gpu)

    def watch_graphs(self, replays: Callable[[], None]) -> Callable[[], None]:
        self.gpu.before_replays.append(replays)
        return lambda: self.gpu.before_replays.remove(replays)

    def memory(self) -> _Meter:
        return _Meter(self.gpu)

    def held_by_others_bytes(self) -> int | None:
        return self.others_bytes

    def card_state(self) -> CardState | None:
        return next(self.card_states, None)

    def random_states(self) -> tuple[Any, ...]:
        return ()

    def set_random_states(self, states: tuple[Any, ...]) -> None:
        pass
