"""Steps in a row under a profiler, and perhaps a sampler of lines, and what they are kept as."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from gobrrr.live.measurements import Measurements
from gobrrr.observe.sampler import is_main_thread, samples_of_steps

NOT_ASKED = (
    "The steps run in a thread that is not the main one: of their Python time only what it sleeps "
    "in has source lines."
)


class Profiling:
    """A profiler from one step's end on, with the windows of the steps that it saw.

    ``longest_s``: a step that goes on for longer is one with something beside it (an evaluation),
    and is more than a profiler should hold: it is ``cut`` where ``look`` finds that out.
    """

    def __init__(
        self,
        profiler: Any,
        longest_s: float = math.inf,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._profiler = profiler
        self._sampler: Any = None
        self._windows: list[int] = []
        self._longest_s, self._clock = longest_s, clock
        self._until_s = math.inf
        self.cut = False

    @property
    def interrupted(self) -> bool:
        """Whether the program has ended the profiler."""
        interrupted: bool = self._profiler.interrupted
        return interrupted

    def start(self) -> None:
        """Begin to profile. Raises RuntimeError if another profiler is running."""
        self._profiler.start()
        self._until_s = self._clock() + self._longest_s

    def sample_with(self, sampler: Any) -> None:
        """Sample lines as well."""
        self._sampler = sampler
        sampler.start()

    def mark(self, window: int) -> None:
        """A step has ended; ``window``: its place among all of them."""
        self._profiler.mark()
        self._windows.append(window)
        self._until_s = self._clock() + self._longest_s

    def look(self) -> None:
        """A call within a step has ended."""
        if self._clock() > self._until_s and not self.cut and hasattr(self._profiler, "cut"):
            try:
                self.cut = self._profiler.cut()
            except Exception:
                # The program has ended it, unseen: this is inside a call of the program's.
                self.cut = True

    def put_into(self, result: Measurements, first: int) -> int:
        """End; the steps from ``first`` on count. How many those are."""
        self._until_s = math.inf
        samples = self._sampler.stop() if self._sampler is not None else None
        steps = self._profiler.stop()[first:]
        if samples is None:
            result.profiled += steps
            result.profiled_windows += self._windows[first:][: len(steps)]
        else:
            if not is_main_thread(result.thread) and NOT_ASKED not in result.notices:
                result.notices.append(NOT_ASKED)
            marks = self._profiler.step_starts_ns()[first:]
            result.sampled_windows += self._windows[first:][: len(steps)]
            result.sampled += samples_of_steps(steps, marks, samples)
        return len(steps)

    def put_timeline_into(self, result: Measurements) -> bool:
        """The same on a device, whose first step and last have no window; whether to try again."""
        if self._sampler is None:
            result.device_timeline = self._profiler.stop()
            result.profiled_windows = self._windows[1:-1]
            return bool(self._profiler.again)
        samples = self._sampler.stop()
        timeline = self._profiler.stop()
        ahead_ns = self._profiler.ahead_ns(timeline)
        if ahead_ns is not None:
            result.sampled_timeline = timeline
            result.line_samples = [sample.from_start(ahead_ns) for sample in samples]
        return False

    def abandon(self) -> None:
        """End without reading anything."""
        self._until_s = math.inf
        if self._sampler is not None:
            self._sampler.stop()
        self._profiler.abandon()
