"""Timing and profiling steps on a GPU: device events for lengths, the profiler's trace for causes.

The profiled steps are exported and read back with the reader of recorded traces, so that a live
GPU step and a trace of it are diagnosed by the same code.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from gobrrr.capture.traces import read_trace
from gobrrr.timeline.data import Timeline


class StepsOnDevice:
    """A CUDA or ROCm device that the program uses (torch calls both ``cuda``)."""

    def __init__(self) -> None:
        self._events: list[Any] = []

    def start_block(self) -> None:
        """Wait for the device, then mark the start of a block of steps."""
        import torch

        torch.cuda.synchronize()
        self._events = []
        self.mark()

    def mark(self) -> None:
        """The end of a step, as an event on the current stream: nothing waits for it."""
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._events.append(event)

    def end_block(self) -> list[int]:
        """Wait for the device; the lengths of the steps between marks, in ns."""
        import torch

        torch.cuda.synchronize()
        pairs = zip(self._events, self._events[1:])
        lengths = [round(before.elapsed_time(after) * 1e6) for before, after in pairs]
        self._events = []
        return lengths

    def make_profiler(self) -> DeviceProfiler:
        """A profiler of host and device."""
        return DeviceProfiler()


def device_in_use() -> StepsOnDevice | None:
    """The GPU, if this process has put something on it; ``None`` on a CPU."""
    import torch

    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return StepsOnDevice() if torch.cuda.memory_allocated() > 0 else None


class DeviceProfiler:
    """Profiles consecutive steps of host and device."""

    def __init__(self) -> None:
        self._profile: Any = None
        self._range: Any = None
        self._step = 0

    def start(self) -> None:
        """Begin. Raises RuntimeError if another profiler is running."""
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        import torch
        from torch.profiler import ProfilerActivity

        if torch.autograd._profiler_enabled():
            raise RuntimeError("another profiler is running in this program")
        self._profile = torch.profiler.profile(
            activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True
        )
        self._profile.start()
        self._enter()

    def _enter(self) -> None:
        import torch

        self._range = torch.profiler.record_function(f"ProfilerStep#{self._step}")
        self._range.__enter__()

    def mark(self) -> None:
        """End one step here and begin the next."""
        self._range.__exit__(None, None, None)
        self._step += 1
        self._enter()

    def stop(self) -> Timeline:
        """End; all steps as a timeline, the first (which pays the profiler's start) left out."""
        import torch

        torch.cuda.synchronize()
        self._range.__exit__(None, None, None)
        self._profile.stop()
        with tempfile.TemporaryDirectory(prefix="gobrrr-") as folder:
            path = Path(folder) / "trace.json"
            self._profile.export_chrome_trace(str(path))
            timeline = read_trace(path)
        self._profile = None
        return without_outer_steps(timeline)

    def abandon(self) -> None:
        """Stop without reading anything."""
        if self._profile is not None:
            self._range.__exit__(None, None, None)
            self._profile.stop()
            self._profile = None


def without_outer_steps(timeline: Timeline) -> Timeline:
    """The same timeline without its first window and without the last, which no step fills."""
    if len(timeline.steps) < 3:
        return timeline
    windows = timeline.steps[1:-1]
    low, high = int(windows[0, 0]), int(windows[-1, 1])
    kernels = timeline.kernels
    inside = (kernels.start_ns >= low) & (kernels.start_ns < high)
    return replace(
        timeline,
        kernels=kernels.take(inside),
        steps=windows,
        step_names=timeline.step_names[1:-1],
    )
