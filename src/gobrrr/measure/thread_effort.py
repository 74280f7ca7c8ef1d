"""What a thread has done and has wanted to do: its processor time, and its wait for a processor."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import threading
import time
from dataclasses import dataclass
from typing import Any

from gobrrr.measure.own_descriptor import OwnDescriptor
from gobrrr.measure.process_counters import waits_of_thread


class ThreadEffort:
    """Reads both of one thread of this process, in ns since arbitrary starts; a few microseconds.

    What is left of the time that passed it slept: a timer, a lock, a file, another process.

    Args:
        clock: of the thread's processor time.
        queue: its ``schedstat``, open.
        state: its ``stat``, open.
    """

    def __init__(self, clock: int, queue: int, state: int) -> None:
        self._clock = clock
        self._queue = OwnDescriptor(queue)
        self._state = OwnDescriptor(state)

    def read(self) -> tuple[int, int] | None:
        """Processor time, and time on a run queue that is over.

        ``None``: the thread has ended, or the program has closed what is not its own.
        """
        # The second field of schedstat (Documentation/scheduler/sched-stats.rst of Linux).
        fields = _text(self._queue).split()
        try:
            return (time.clock_gettime_ns(self._clock), int(fields[1])) if fields else None
        except OSError:
            return None

    def is_runnable(self) -> bool | None:
        """Whether the thread has a processor or waits for one now; ``None`` as of ``read``.

        A wait on a run queue is counted when it ends: until then the counters stand still.
        """
        # proc_pid_stat(5): the state follows the name, which stands in parentheses.
        text = _text(self._state)
        return text.rpartition(b")")[2].split()[0] == b"R" if text else None

    def __del__(self) -> None:
        self._queue.close()
        self._state.close()


def _text(file: OwnDescriptor) -> bytes:
    """What is in it; nothing where it is gone."""
    found = ctypes.create_string_buffer(128)
    count = _pread()(file.number, found, len(found), 0) if file.is_own() else 0
    return found.raw[: max(0, count)]


@functools.cache
def _pread() -> Any:
    # With the interpreter's lock kept: ``os.pread`` gives it away, and another thread may run long
    # before it is back, so that two counters would be of different moments.
    function = ctypes.PyDLL(None).pread
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_long)
    function.restype = ctypes.c_ssize_t
    return function


@dataclass(frozen=True, slots=True)
class StepEffort:
    """What the thread of a step did in it, in ns.

    ``ran_ns`` is its processor time; ``paused_ns`` that of the garbage collector, in whichever
    thread it held the interpreter; ``slept_ns`` what it neither ran nor waited for a processor
    (``None``: the system does not tell).
    """

    ran_ns: int
    paused_ns: int
    slept_ns: int | None


class EffortOfSteps:
    """What the thread that calls it does in each of several steps in a row.

    A thread that sleeps gives its processor up, which is counted. Only after a step in which that
    happened is the thread's queue read: 50 us after a step that has filled the caches.
    """

    def __init__(self) -> None:
        self._thread = 0
        self._effort: ThreadEffort | None = None
        self._waits: int | None = None
        self._idle_ns: int | None = None
        self._ran_ns = 0
        self._paused_ns = self._pause_began_ns = 0

    def step_begins(self, *, first: bool) -> None:
        """A step of the calling thread begins: the first of those in a row, or the next one."""
        # Not Python's own number of the thread: the next one has it once this one has ended.
        thread = threading.get_native_id()
        if self._thread != thread:
            self._thread, first = thread, True
            self._effort = effort_of(threading.get_ident())
        if first:
            self._waits, self._idle_ns = waits_of_thread(), self._idle_so_far()
        self._paused_ns = self._pause_began_ns = 0
        if self._on_gc not in gc.callbacks:
            gc.callbacks.append(self._on_gc)
        self._ran_ns = time.thread_time_ns()

    def of_step(self, length_ns: int) -> list[StepEffort]:
        """Of the step that ends now; nothing where its begin was not seen in this thread."""
        ran_ns = time.thread_time_ns() - self._ran_ns
        if not self.stop() or self._thread != threading.get_native_id():
            return []
        return [StepEffort(ran_ns, self._paused_ns, self._slept(length_ns))]

    def stop(self) -> bool:
        """Watch no longer; whether a step was being watched."""
        if self._on_gc not in gc.callbacks:
            return False
        gc.callbacks.remove(self._on_gc)
        return True

    def _slept(self, length_ns: int) -> int | None:
        if self._effort is None:
            return None
        waits = waits_of_thread()
        if waits is not None and waits == self._waits:
            return 0
        # Since the last reading it has slept in this step alone.
        before_ns, self._idle_ns = self._idle_ns, self._idle_so_far()
        self._waits = waits
        if before_ns is None or self._idle_ns is None:
            return None
        return min(length_ns, max(0, self._idle_ns - before_ns))

    def _idle_so_far(self) -> int | None:
        if self._effort is None:
            return None
        now, done = time.perf_counter_ns(), self._effort.read()
        if done is None:
            # Of this and later steps it is not known.
            self._effort = None
            return None
        return now - sum(done)

    def _on_gc(self, phase: str, info: dict[str, int]) -> None:
        # Called in the thread that collects. Its turns off the processor are other programs'.
        now = time.thread_time_ns()
        if phase == "start":
            self._pause_began_ns = now
        elif self._pause_began_ns:
            self._paused_ns += now - self._pause_began_ns
            self._pause_began_ns = 0


def effort_of(thread: int) -> ThreadEffort | None:
    """Of the calling thread, or one of ``threading.enumerate()``, by its identifier.

    ``None`` where the system does not tell.
    """
    if thread == threading.get_ident():
        native: int | None = threading.get_native_id()
    else:
        native = next((t.native_id for t in threading.enumerate() if t.ident == thread), None)
    if not hasattr(time, "pthread_getcpuclockid") or native is None:
        return None
    with contextlib.ExitStack() as opened:
        files = []
        for name in ("schedstat", "stat"):
            try:
                file = os.open(f"/proc/self/task/{native}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return None
            opened.callback(os.close, file)
            files.append(file)
        opened.pop_all()
    return ThreadEffort(time.pthread_getcpuclockid(thread), *files)
