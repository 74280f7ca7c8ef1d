"""Steps timed op by op through the dispatcher, for programs that use torch's profiler themselves.

Only one profiler can run in a thread. What the program opens would end gobrrr's, so each op is
timed below autograd by the recorder instead: durations hold one call back into the dispatcher
more, and what lies between ops holds the recorder's own time, which the unprofiled step corrects.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from gobrrr.capture.op_recorder import OpRecorder
from gobrrr.capture.profile import RawEvents
from gobrrr.timeline.graph import StepOp


class DispatchProfiler:
    """The same steps as ``HostProfiler`` gives, of ops that a dispatch mode sees."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._recorder = OpRecorder()
        self._marks_ns: list[int] = []

    def start(self) -> None:
        """Begin timing."""
        self._recorder.start()
        self.mark()

    def mark(self) -> None:
        """End one step here and begin the next."""
        self._marks_ns.append(self._clock())

    @property
    def interrupted(self) -> bool:
        """Nothing that a program does ends this one."""
        return False

    def stop(self) -> list[RawEvents]:
        """End timing and return the steps between marks, the first included."""
        ops = self._recorder.stop()
        return [events_of(ops, begin, end) for begin, end in pairwise(self._marks_ns)]

    def step_starts_ns(self) -> list[int]:
        """Where each step began, on the caller's clock."""
        return self._marks_ns

    def abandon(self) -> None:
        """Stop without reading anything."""
        self._recorder.stop()


def events_of(ops: Sequence[StepOp], begin_ns: int, end_ns: int) -> RawEvents:
    """The ops that ran between two moments as events of a profiled step.

    The step's thread is the one with the most ops.
    """
    inside = [op for op in ops if begin_ns <= op.start_ns < end_ns]
    inside.sort(key=lambda op: (op.start_ns, -op.end_ns))
    names: dict[str, int] = {}
    threads = [op.thread for op in inside]
    own = max(set(threads), key=threads.count) if threads else 0
    return RawEvents(
        name=np.array([names.setdefault(op.call.name, len(names)) for op in inside], np.int32),
        names=tuple(names),
        start_ns=np.array([op.start_ns - begin_ns for op in inside], np.int64),
        end_ns=np.array([min(op.end_ns, end_ns) - begin_ns for op in inside], np.int64),
        thread=np.array([0 if thread == own else 1 for thread in threads], np.int32),
        annotation=np.zeros(len(inside), bool),
        length_ns=end_ns - begin_ns,
    )
