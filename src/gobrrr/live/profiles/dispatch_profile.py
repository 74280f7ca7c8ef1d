"""Steps timed op by op through the dispatcher, where torch's profiler cannot be used.

Only one profiler can run in a thread: what the program opens would end gobrrr's. And of steps of
very many ops it holds gigabytes. Each op is then timed below autograd: durations hold one call
back into the dispatcher more, and what lies between ops holds this mode's own time, which the
unprofiled step corrects.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from gobrrr.live.profiles.profile import RawEvents
from gobrrr.observe.dispatch_stack import enter_below, leave
from gobrrr.observe.leaf_ops import leaf_op_mode, name_of


class DispatchProfiler:
    """The same steps as ``HostProfiler`` gives, of ops that a dispatch mode sees."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._mode: Any = None
        self._marks_ns: list[int] = []
        self._names: dict[str, int] = {}
        self._number_of: dict[Any, int] = {}
        # Per op: number of its name, start, end, thread; one call, which no other thread can split.
        self._ops = array("q")

    def start(self) -> None:
        """Begin timing."""
        self._mode = leaf_op_mode(self._time)
        enter_below(self._mode)
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
        self.abandon()
        ops = np.array(self._ops, np.int64).reshape(-1, 4)
        names = tuple(self._names)
        return [_events_of(ops, names, begin, end) for begin, end in pairwise(self._marks_ns)]

    def step_starts_ns(self) -> list[int]:
        """Where each step began, on the caller's clock."""
        return self._marks_ns

    def abandon(self) -> None:
        """Stop without reading anything."""
        if self._mode is not None:
            self._mode.active = False
            leave(self._mode)
            self._mode = None

    def _time(self, func: Any, args: Any, kwargs: Any) -> Any:
        number = self._number_of.get(func)
        if number is None:
            number = self._names.setdefault(name_of(func), len(self._names))
            self._number_of[func] = number
        clock = self._clock
        start_ns = clock()
        result = func(*args, **kwargs)
        end_ns = clock()
        self._ops.extend((number, start_ns, end_ns, threading.get_native_id()))
        return result


def _events_of(
    ops: np.ndarray[Any, np.dtype[np.int64]], names: tuple[str, ...], begin_ns: int, end_ns: int
) -> RawEvents:
    """The ops (n, 4) that began between two moments as events of a profiled step.

    The step's thread is the one with the most ops.
    """
    inside = ops[(begin_ns <= ops[:, 1]) & (ops[:, 1] < end_ns)]
    inside = inside[np.lexsort((-inside[:, 2], inside[:, 1]))]
    threads, counts = np.unique(inside[:, 3], return_counts=True)
    own = threads[counts.argmax()] if len(threads) else 0
    return RawEvents(
        name=inside[:, 0].astype(np.int32),
        names=names,
        start_ns=inside[:, 1] - begin_ns,
        end_ns=np.minimum(inside[:, 2], end_ns) - begin_ns,
        thread=(inside[:, 3] != own).astype(np.int32),
        annotation=np.zeros(len(inside), bool),
        length_ns=end_ns - begin_ns,
    )
