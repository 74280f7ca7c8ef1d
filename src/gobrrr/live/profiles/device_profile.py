"""Timing and profiling steps on a GPU: device events for lengths, the profiler's trace for causes.

The profiled steps are exported and read back with the reader of recorded traces, so that a live
GPU step and a trace of it are diagnosed by the same code.
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import numpy as np

from gobrrr.devices.backend import Backend, DriverCalls, StepProfiler, StepTimer
from gobrrr.devices.backends import gpu_in_use
from gobrrr.devices.card import CardState
from gobrrr.live.profiles.open_ranges import end_with_profiler
from gobrrr.live.profiles.recorded_timeline import step_marks
from gobrrr.recordings.record_repairs import sound_steps
from gobrrr.recordings.records import refuse_senseless_steps
from gobrrr.recordings.steps import MARKED, training_steps
from gobrrr.recordings.traces import read_trace
from gobrrr.timeline.data import HostKind, Int64, KernelKind, Kernels, Timeline
from gobrrr.timeline.errors import UserCodeError
from gobrrr.timeline.intervals import union
from gobrrr.timeline.names import GRAPH_REPLAY
from gobrrr.timeline.nesting import ROUNDING_NS

# The clock of the samples of lines.
clock_ns = time.perf_counter_ns
if TYPE_CHECKING:
    from gobrrr.live.measurements import Measurements

Given = ParamSpec("Given")
Answer = TypeVar("Answer")
RUN_AHEAD = (
    "The host ran ahead by a step or more: steps are divided where the device begins them, and the "
    "first and the last recorded one are left out."
)
TOO_FEW_TO_DIVIDE = (
    "The host ran ahead by a step or more, and too few steps were recorded to divide them where "
    "the device begins them: their lengths are those of the host's marks. Record four or more."
)
# Steps between two synchronisations.
STEPS_TOGETHER = 4
# Of fewer marked steps the first and the last, which have no window, would be most.
LEAST_DIVIDED = 4


class StepsOnDevice:
    """A GPU that the program uses, through its backend."""

    def __init__(self, backend: Backend, timer: StepTimer) -> None:
        self.backend = backend
        self.start_block = _answering(timer.start_block)
        self.mark = _answering(timer.mark)
        self.end_block = _answering(timer.end_block)
        self._synchronise = _answering(backend.synchronise)

    def card_state(self) -> CardState | None:
        """What its driver says once all work that it was given is done."""
        self._synchronise()
        return _answering(self.backend.card_state)()

    def driver_calls(self) -> DriverCalls | None:
        """What its allocator has asked of the driver so far; ``None``: not counted."""
        memory = self.backend.memory()
        return None if memory is None else memory.driver_calls()

    @staticmethod
    def left_alone_in(measured: Measurements) -> bool:
        """Whether profiled steps did nothing on it: it holds tensors, the processor computes.

        No kernel was recorded, no call that launches one and no op on a tensor of the device. Where
        the profiler may not look at the device it may see no call either: then the ops tell.
        """
        timeline, ops = measured.device_timeline, measured.recorded
        if timeline is None or len(timeline.kernels) or ops is None:
            return False
        calls = [op.call for op in ops]
        places = {t.device for call in calls for t in (*call.tensors, *(call.outputs or ()))}
        replays = any(call.name == GRAPH_REPLAY for call in calls)
        return not (launched(timeline) or replays or places - {"cpu", "meta"})

    def lengths_of(self, step: Callable[[], object]) -> list[int]:
        """Lengths of a few steps in ns: of one alone the queue's draining would be a part."""
        self.start_block()
        for _ in range(STEPS_TOGETHER):
            step()
            self.mark()
        return self.end_block()

    def make_profiler(self) -> DeviceProfiler:
        """A profiler of host and device. Raises RuntimeError where there is none."""
        profiler = self.backend.profiler()
        if profiler is None:
            raise RuntimeError(" ".join(self.backend.MISSING) or "no profiler sees this device")
        return DeviceProfiler(profiler, self.backend.synchronise)


def launched(timeline: Timeline) -> bool:
    """Whether a call was recorded that gives a device work."""
    return bool((timeline.host.kind == HostKind.LAUNCH).any())


def device_in_use() -> StepsOnDevice | None:
    """The GPU, if this process has put something on it; ``None`` on a CPU."""
    backend = gpu_in_use()
    timer = None if backend is None else backend.timer()
    return None if backend is None or timer is None else StepsOnDevice(backend, timer)


def _answering(ask: Callable[Given, Answer]) -> Callable[Given, Answer]:
    """The same, with what a device that is gone makes of it in one sentence.

    What kernels did wrong shows at the next wait, which may be gobrrr's.
    """

    @functools.wraps(ask)
    def asked(*args: Given.args, **kwargs: Given.kwargs) -> Answer:
        try:
            return ask(*args, **kwargs)
        except RuntimeError as error:
            line = (str(error).splitlines() or [type(error).__name__])[0]
            raise UserCodeError(
                f"the GPU failed while gobrrr waited for it ({line}): a kernel of the program "
                "failed, or the device is lost"
            ) from error

    return asked


class DeviceProfiler:
    """Profiles consecutive steps of host and device; ``stop`` gives them as a timeline."""

    def __init__(self, profiler: StepProfiler, synchronise: Callable[[], None]) -> None:
        self._profiler = profiler
        self._synchronise = _answering(synchronise)
        self._mark = _answering(profiler.mark)
        self._marked_ns: list[int] = []
        self._end_ranges: Callable[[], None] = lambda: None
        # Once stopped: neither a call nor a kernel was recorded, and another profile may hold some.
        self.again = False

    @property
    def interrupted(self) -> bool:
        """Whether the program has ended this profiler, by starting and stopping one of its own."""
        return self._profiler.interrupted

    def start(self) -> None:
        """Begin. Raises RuntimeError if another profiler is running."""
        # Which would not be told from a device that is gone.
        self._synchronise()
        self._profiler.start()
        self._marked_ns = [clock_ns()]
        self._end_ranges = end_with_profiler()

    def mark(self) -> None:
        """A step has ended."""
        self._mark()
        self._marked_ns.append(clock_ns())

    def ahead_ns(self, timeline: Timeline) -> int | None:
        """How far this process's clock is ahead of the timeline's; ``None``: marks are missing."""
        marks = step_marks(timeline)
        if len(marks) != len(self._marked_ns):
            return None
        # The marks are made just before the clock is read: the least is nearest.
        return int((np.array(self._marked_ns, np.int64) - marks).min())

    def abandon(self) -> None:
        """Stop without reading anything: the program ended or changed its steps."""
        self._end_ranges()
        self._profiler.abandon()

    def stop(self) -> Timeline:
        """End; all steps as a timeline, the first (which pays the profiler's start) left out."""
        self._end_ranges()
        with tempfile.TemporaryDirectory(prefix="gobrrr-") as folder:
            path = Path(folder) / "trace.json"
            _answering(self._profiler.stop)(path)
            timeline = read_trace(path)
        unseen = not len(timeline.kernels) and not launched(timeline)
        self.again = unseen and self._profiler.may_see_more()
        return by_kernels(timeline)


def by_kernels(timeline: Timeline) -> Timeline:
    """The same timeline with windows that hold the kernels of their own step.

    The host runs ahead: by the time that a device has done one step the host may have issued all,
    and windows between the host's marks would hold the kernels of any. A step begins with the
    first kernel that its code launched on the stream that works most, and ends where the next
    begins: on one stream kernels run in the order of their launches, while another may be steps
    ahead of it (copies of the next batch). The first step pays the profiler's start and the last
    has no next: neither has a window.
    """
    return _between(step_marks(timeline), timeline)


def _between(marks: Int64, timeline: Timeline) -> Timeline:
    kernels, host = timeline.kernels, timeline.host
    if not len(kernels) or len(marks) < 2:
        return timeline
    # When work ran says nothing of the step whose code asked for it: of work whose launch was not
    # recorded its op does.
    asked = np.where(kernels.launch >= 0, kernels.launch, kernels.op)
    placed = np.flatnonzero(asked >= 0)
    # A record that is earlier than its call is wrong, and no step begins with it.
    placed = placed[kernels.start_ns[placed] + ROUNDING_NS >= host.start_ns[asked[placed]]]
    step = np.searchsorted(marks, host.start_ns[asked[placed]], side="right") - 1
    busiest = kernels.stream[placed] == _busiest_stream(kernels)
    works = (kernels.kind[placed] == KernelKind.KERNEL) & (step >= 0)
    # Steps that take streams by turns are not all on one: each begins with its first on any.
    if np.isin(step[works], step[busiest]).all():
        placed, step = placed[busiest], step[busiest]
    numbers, first = np.unique(step, return_index=True)
    # Kernels are in the order of their starts: the first of a step is its earliest.
    starts = kernels.start_ns[placed[first[numbers >= 0]]]
    starts = starts[1:] if len(starts) > 2 else starts
    if len(starts) < 2 or (np.diff(starts) <= 0).any():
        return timeline
    windows = np.stack((starts[:-1], starts[1:]), axis=1)
    # The kernel that ends the last window belongs to no step, but says what its idle time was for.
    inside = (kernels.start_ns >= windows[0, 0]) & (kernels.start_ns <= windows[-1, 1])
    return replace(
        timeline,
        kernels=kernels.take(inside),
        steps=windows,
        step_names=tuple(f"step {number + 1}" for number in range(len(windows))),
    )


def steps_of_device(timeline: Timeline) -> Timeline:
    """A recording whose marked windows hold other steps' kernels gets windows of its own kernels.

    That is so where the host ran ahead by a step or more: most kernel time then lies outside the
    window of the code that launched it. The others stay as they are marked.

    Marks of a part of a training step are joined, and steps in doubt left out.

    Raises InputError where a step begins or ends at a time that is not the recording's, and where
    no step is left that can be.
    """
    refuse_senseless_steps(timeline)
    joined = training_steps(timeline)
    marks = step_marks(timeline) if joined is timeline else joined.steps[:, 0]
    timeline, kernels = joined, joined.kernels
    if timeline.steps_how != MARKED or not len(kernels):
        return sound_steps(timeline)
    rows = np.flatnonzero(kernels.launch >= 0)
    launched = np.searchsorted(marks, timeline.host.start_ns[kernels.launch[rows]], side="right")
    ran = np.searchsorted(marks, kernels.start_ns[rows], side="right")
    took = (kernels.end_ns - kernels.start_ns)[rows]
    if took[launched != ran].sum() <= took[launched == ran].sum():
        return sound_steps(timeline)
    if len(marks) < LEAST_DIVIDED:
        return replace(timeline, notices=(*timeline.notices, TOO_FEW_TO_DIVIDE))
    found = _between(marks, timeline)
    return found if found is timeline else replace(found, notices=(*found.notices, RUN_AHEAD))


def idle_share(timeline: Timeline) -> float:
    """The share of the steps' time in which nothing ran on the device."""
    windows, kernels = timeline.steps, timeline.kernels
    busy = union(
        np.maximum(kernels.start_ns, windows[0, 0]), np.minimum(kernels.end_ns, windows[-1, 1])
    )
    return 1.0 - busy.total / max(1, int(windows[-1, 1] - windows[0, 0]))


def _busiest_stream(kernels: Kernels) -> int:
    """The stream with the most time of kernels; where only copies ran, of those."""
    works = kernels.kind == KernelKind.KERNEL
    counted: Int64 = np.where(works | ~works.any(), kernels.end_ns - kernels.start_ns, 0)
    streams, index = np.unique(kernels.stream, return_inverse=True)
    return int(streams[np.argmax(np.bincount(index, weights=counted))])
