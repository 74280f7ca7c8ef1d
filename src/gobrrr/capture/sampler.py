"""Which lines Python time goes to: the step's thread sampled from a second thread.

Profiler events say when no operator ran; only the interpreter's frame says what did. Samples are
used for lines alone, never for times, and are taken in steps of their own, because waking a
second thread takes the interpreter's lock from the first.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass

from gobrrr.capture.source_lines import stack_of_thread, user_line_of_stack

INTERVAL_S = 0.0005
# How long a thread may keep the interpreter's lock once another wants it. Python's default of 5 ms
# would only ever show lines that happen to release it. Much less, and the sampled thread could get
# the lock back while its frames are being read, which CPython does not survive.
SWITCH_INTERVAL_S = 0.001


@dataclass(frozen=True, slots=True)
class LineSample:
    """The user's line at a moment of ``time.perf_counter_ns``; ``None``: no line is the user's."""

    time_ns: int
    line: str | None


class LineSampler:
    """Samples one thread until stopped."""

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._samples: list[LineSample] = []
        self._stop = threading.Event()
        self._switch_interval_s = sys.getswitchinterval()
        self._worker = threading.Thread(target=self._run, name="gobrrr-lines", daemon=True)

    def start(self) -> None:
        """Begin sampling."""
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._worker.start()

    def stop(self) -> list[LineSample]:
        """End sampling; the samples in order of time."""
        self._stop.set()
        self._worker.join()
        sys.setswitchinterval(self._switch_interval_s)
        return self._samples

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            stack = stack_of_thread(self._thread)
            now = time.perf_counter_ns()
            self._samples.append(LineSample(now, user_line_of_stack(stack)))
