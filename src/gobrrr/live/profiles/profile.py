"""torch's profiler on a few steps, read as raw events (``prof.events()`` takes 10x as long)."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from gobrrr.devices.accelerator import profiler_runs
from gobrrr.live.profiles.collective_waits import ranges_around_waits
from gobrrr.live.profiles.open_ranges import end_with_profiler
from gobrrr.live.profiles.thread_end import at_end_of_thread
from gobrrr.measure.thread_effort import ThreadEffort, effort_of
from gobrrr.measure.torch_profiler import profiler_of_torch
from gobrrr.timeline.data import Int32, Int64

STEP_MARK = "gobrrr::step_ends"


@dataclass(frozen=True)
class RawEvents:
    """Host events of one profiled step, sorted by start (ties: the longer first).

    ``start_ns`` and ``end_ns`` count from the step's start; ``name`` indexes ``names``; ``thread``
    0 is the step's own. ``annotation`` marks ranges that are not operators. ``length_ns`` is the
    step's window, which begins at ``begin_ns`` of the caller's clock. ``gc_ns`` are (start, end) of
    garbage collections in the window. ``queued_ns``: how long its thread waited for a processor.
    """

    names: tuple[str, ...]
    start_ns: Int64
    end_ns: Int64
    name: Int32
    thread: Int32
    annotation: np.ndarray[Any, np.dtype[np.bool_]]
    length_ns: int
    gc_ns: tuple[tuple[int, int], ...] = ()
    begin_ns: int = 0
    queued_ns: int = 0

    def __len__(self) -> int:
        return len(self.start_ns)


class HostProfiler:
    """Profiles consecutive steps. ``mark`` ends one; ``stop`` returns them.

    The first step under a fresh profiler pays its start-up: the caller discards it.
    """

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._profile: Any = None
        self._marks_ns: list[tuple[int, int]] = []
        # Before and after each mark, where the system tells it.
        self._queued_ns: list[tuple[int, int]] = []
        self._effort: ThreadEffort | None = None
        self._gc_ns: list[list[int]] = []
        self._no_ranges: Callable[[], None] = lambda: None
        self._end_ranges: Callable[[], None] = lambda: None
        self._lives_on: Callable[[], None] = lambda: None
        self._ended = False
        self._thread = threading.get_ident()

    def start(self) -> None:
        """Begin profiling. Raises RuntimeError if another profiler is running."""
        # Kineto of torch 2.13 prints a line per start and stop; 99 silences it.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        import torch

        if profiler_runs():
            raise RuntimeError("another profiler is running in this program")
        self._profile = profiler_of_torch(activities=[torch.profiler.ProfilerActivity.CPU])
        gc.callbacks.append(self._on_gc)
        self._no_ranges = ranges_around_waits()
        self._effort = effort_of(threading.get_ident())
        self._profile.start()
        self._end_ranges = end_with_profiler()
        # torch's profiler belongs to a thread: no other one can end it, or read it.
        self._lives_on = at_end_of_thread(self._end)
        self.mark()

    def mark(self) -> None:
        """End one step here and begin the next."""
        import torch

        entered, queued = self._clock(), self._queued_so_far()
        with torch._C._profiler._RecordFunctionFast(STEP_MARK):
            pass
        self._queued_ns.append((queued, self._queued_so_far()))
        self._marks_ns.append((entered, self._clock()))

    def _queued_so_far(self) -> int:
        if self._effort is not None:
            done = self._effort.read()
            if done is not None:
                return done[1]
            # No more is known of its waits.
            self._effort = None
        return self._queued_ns[-1][1] if self._queued_ns else 0

    @property
    def interrupted(self) -> bool:
        """Whether the program has ended this profiler, by starting and stopping one of its own."""
        return self._profile is not None and not self._ended and profiler_runs() is False

    def cut(self) -> bool:
        """End within a step, whose events are lost; ``False`` from a thread that cannot."""
        if threading.get_ident() == self._thread:
            self._end()
        return self._ended

    def _on_gc(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._gc_ns.append([self._clock(), -1])
        elif self._gc_ns:
            self._gc_ns[-1][1] = self._clock()

    def stop(self) -> list[RawEvents]:
        """End profiling and return the steps between marks, the first included."""
        self._end()
        events = self._profile.profiler.kineto_results.events()
        collections = tuple((begin, end) for begin, end in self._gc_ns)
        steps = [
            replace(step, queued_ns=end - begin)
            for step, ((_, begin), (end, _)) in zip(
                split_at_marks(events, tuple(self._marks_ns), collections),
                itertools.pairwise(self._queued_ns),
            )
        ]
        del events
        self._forget()
        return steps

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._stop_watching()
            self._profile.stop()

    def _stop_watching(self) -> None:
        self._lives_on()
        self._no_ranges()
        self._end_ranges()
        if self._on_gc in gc.callbacks:
            gc.callbacks.remove(self._on_gc)

    def _forget(self) -> None:
        # The profile refers to itself, and its results take some 4 kB an event: waiting for
        # the collector would hold the results of several runs.
        self._profile.profiler.kineto_results = None
        self._profile = None

    def step_starts_ns(self) -> list[int]:
        """Where each step began, on the caller's clock."""
        return [after for _, after in self._marks_ns]

    def abandon(self) -> None:
        """Stop without reading anything: the program ended or changed its steps."""
        self._stop_watching()
        if self._profile is not None:
            # What the program has ended cannot be ended again.
            with contextlib.suppress(RuntimeError):
                self._end()
            self._forget()


def split_at_marks(
    events: Any,
    marks_ns: tuple[tuple[int, int], ...],
    gc_ns: tuple[tuple[int, int], ...],
) -> list[RawEvents]:
    """Raw kineto events -> one ``RawEvents`` per stretch between marks of the marking thread.

    ``marks_ns`` are the marks by the caller's clock (before, after), which tie the two clocks
    together; ``gc_ns`` are on the caller's clock.
    """
    count = len(events)
    name_of: dict[str, int] = {}
    start = np.empty(count, np.int64)
    duration = np.empty(count, np.int64)
    name = np.empty(count, np.int32)
    thread = np.empty(count, np.int64)
    annotation = np.zeros(count, bool)
    for i, event in enumerate(events):
        start[i] = event.start_ns()
        duration[i] = event.duration_ns()
        name[i] = name_of.setdefault(event.name(), len(name_of))
        thread[i] = event.device_resource_id()
        annotation[i] = event.is_user_annotation()
    order = np.lexsort((-duration, start))
    start, duration, name = start[order], duration[order], name[order]
    thread, annotation = thread[order], annotation[order]
    marks = np.flatnonzero(name == name_of.get(STEP_MARK, -1))
    names = tuple(name_of)
    if len(marks) < 2:
        return []
    own_thread = thread[marks[0]]
    # The caller's clock against the profiler's, from the marks themselves.
    offset = int(median(int(start[m]) - before for m, (before, _) in zip(marks, marks_ns)))
    steps = []
    for first, last in itertools.pairwise(marks):
        begin, end = int(start[first] + duration[first]), int(start[last])
        low = int(np.searchsorted(start, begin, "left"))
        high = int(np.searchsorted(start, end, "left"))
        rows = np.arange(low, high)
        rows = rows[name[rows] != name_of[STEP_MARK]]
        ends = np.minimum(start[rows] + duration[rows], end)
        collections = tuple(
            (max(0, a + offset - begin), min(end, b + offset) - begin)
            for a, b in gc_ns
            if b > 0 and a + offset < end and b + offset > begin
        )
        steps.append(
            RawEvents(
                names=names,
                start_ns=start[rows] - begin,
                end_ns=ends - begin,
                name=name[rows],
                thread=np.where(thread[rows] == own_thread, 0, 1 + thread[rows]).astype(np.int32),
                annotation=annotation[rows],
                length_ns=end - begin,
                gc_ns=collections,
                begin_ns=begin - offset,
            )
        )
    return steps


@dataclass(frozen=True)
class ProfilerCost:
    """What recording one event costs, in ns: inside its own duration, and outside it."""

    inside_ns: float
    outside_ns: float


def calibrate_profiler_cost(repeats: int = 7, events: int = 2000) -> ProfilerCost:
    """Time a one-event operator with and without the profiler, and an empty range inside it.

    The total is the growth per ``add_`` on one element; the inside part is the recorded length of
    a range that holds nothing. Minimum of ``repeats``. Where the program's own profiler is open,
    no step was recorded by ours: 0.
    """
    import torch

    if profiler_runs():
        return ProfilerCost(inside_ns=0.0, outside_ns=0.0)

    fast_range = torch._C._profiler._RecordFunctionFast
    clock = time.perf_counter_ns
    one = torch.zeros(1)
    add = one.add_

    def loop() -> int:
        with torch.no_grad():
            begin = clock()
            for _ in range(events):
                add(one)
            return clock() - begin

    loop()
    off, on, inside = [], [], []
    for _ in range(repeats):
        off.append(loop())
        profiler = HostProfiler()
        profiler.start()
        on.append(loop())
        profiler.mark()
        for _ in range(200):
            with fast_range("gobrrr::empty"):
                pass
        profiler.mark()
        empty = profiler.stop()[-1]
        inside.append(float(np.median(empty.end_ns - empty.start_ns)))
    total = max(0.0, (min(on) - min(off)) / events)
    inside_ns = min(total, min(inside))
    return ProfilerCost(inside_ns=inside_ns, outside_ns=total - inside_ns)
