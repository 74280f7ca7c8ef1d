"""Which lines Python time goes to: the main thread asked, from a second one, where it is.

Profiler events say when no operator ran; only the interpreter's frame says what did. Samples are
used for lines alone, never for times, and are taken in steps of their own, because waking a
second thread takes the interpreter's lock from the first.

The second thread does not read the frames itself: in CPython 3.11 another thread's frames may be
half made even under the lock. It leaves a pending call, which the main thread runs between two
bytecodes and which reads its own frames.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from dataclasses import dataclass

from gobrrr.capture.source_lines import user_line

INTERVAL_S = 0.0005
# How long the main thread may keep the interpreter's lock once the sampler wants it; Python's
# default of 5 ms would show only lines that happen to release it.
SWITCH_INTERVAL_S = 0.0005
# A call that had to wait longer found the thread inside an operator: it shows where that returned
# to, not what the thread was doing when asked.
LATEST_ANSWER_NS = 100_000

_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class LineSample:
    """The user's line at a moment of ``time.perf_counter_ns``; ``None``: no line is the user's."""

    time_ns: int
    line: str | None


class LineSampler:
    """Samples the main thread until stopped. Another thread cannot be sampled: it has no lines."""

    def __init__(self, thread: int) -> None:
        self._possible = thread == threading.main_thread().ident
        self._samples: list[LineSample] = []
        self._asked_ns = 0
        self._stop = threading.Event()
        self._switch_interval_s = sys.getswitchinterval()
        self._callback = _Callback(self._answer)
        self._worker = threading.Thread(target=self._run, name="gobrrr-lines", daemon=True)

    def start(self) -> None:
        """Begin sampling."""
        if self._possible:
            sys.setswitchinterval(SWITCH_INTERVAL_S)
            self._worker.start()

    def stop(self) -> list[LineSample]:
        """End sampling; the samples in order of time."""
        if self._possible and not self._stop.is_set():
            self._stop.set()
            self._worker.join()
            sys.setswitchinterval(self._switch_interval_s)
            # A call may still be pending: it must find its function alive.
            _ALIVE.append(self._callback)
        return self._samples

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            if self._asked_ns == 0:
                self._asked_ns = time.perf_counter_ns()
                ctypes.pythonapi.Py_AddPendingCall(self._callback, None)

    def _answer(self, _: object) -> int:
        now = time.perf_counter_ns()
        if now - self._asked_ns < LATEST_ANSWER_NS and not self._stop.is_set():
            self._samples.append(LineSample(now, user_line(sys._getframe(1))))
        self._asked_ns = 0
        return 0


_ALIVE: list[object] = []
