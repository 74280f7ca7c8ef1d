"""A thread of gobrrr's in the program's process, which the program does not meet."""

from __future__ import annotations

import _thread
import os
import threading
from collections.abc import Callable

from gobrrr.measure.fork_warning import count_without

# Those that were started and have not ended.
_running: set[OwnThread] = set()
_counted: list[bool] = []


class OwnThread:
    """Calls ``target`` in a thread that is not among ``threading.enumerate()``.

    A program that waits for all its threads, or counts them, would wait for this one too. No exit
    waits for it. What it runs must not call ``threading.current_thread()``, which adds it there.
    """

    def __init__(self, target: Callable[[], None]) -> None:
        self._target = target
        self._process = 0
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin; once."""
        if not _counted:
            _counted.append(True)
            count_without(lambda: sum(thread.is_alive() for thread in tuple(_running)))
        self._process = os.getpid()
        _running.add(self)
        _thread.start_new_thread(self._run, ())

    def is_alive(self) -> bool:
        """Whether it was started, in this process and not one that it was forked from, and runs."""
        return self._process == os.getpid() and not self._ended.is_set()

    def join(self) -> None:
        """Wait until it has ended."""
        if self.is_alive():
            self._ended.wait()

    def _run(self) -> None:
        try:
            self._target()
        finally:
            _running.discard(self)
            self._ended.set()
