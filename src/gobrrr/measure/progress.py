"""What a Python call tells on stderr while it measures; nothing of one that is soon over.

On a terminal one line that changes, else a line every few seconds. Both are drawn between steps,
where nothing is timed; only the first sentence comes from a thread, because a first step can take
minutes.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from gobrrr.timeline.errors import InputError

Progress = Callable[[str, int, int], None]

SILENT_S = 2.0
BETWEEN_LINES_S, BETWEEN_DRAWINGS_S = 5.0, 0.2


def silent(phase: str, done: int, wanted: int) -> None:
    """Progress that nobody is told."""


@contextmanager
def shown(progress: Progress | bool | None, *, stream: TextIO | None = None) -> Iterator[Progress]:
    """What ``progress=`` means: a callable ``(phase, done, wanted)``, ``False`` for nothing,
    ``True`` or ``None`` for sentences on stderr.

    Raises InputError for anything else.
    """
    if progress is False:
        yield silent
        return
    if progress is not None and progress is not True:
        if not callable(progress):
            raise InputError(
                "progress must be True, False or a function of (phase, done, wanted), "
                f"not {type(progress).__name__}"
            )
        yield progress
        return
    stream = sys.stderr if stream is None else stream
    told = OnStream(stream)
    try:
        yield told
    finally:
        told.close()


class OnStream:
    """Shows the phase on a stream: redrawn on a terminal, else as lines."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._begin_s = clock()
        self._drawn_s: float | None = None
        self._phase = ""
        self._count = (0, 0)
        self._bar: Any = None
        self._lock = threading.Lock()
        self._closed = False
        self._first = threading.Timer(SILENT_S, self._say_first)
        self._first.daemon = True
        self._first.start()

    def __call__(self, phase: str, done: int = 0, wanted: int = 0) -> None:
        """``done`` of ``wanted`` of this phase is over."""
        with self._lock:
            self._phase, self._count = phase, (done, wanted)
            now = self._clock()
            if self._drawn_s is None:
                due = now - self._begin_s >= SILENT_S
            else:
                between = BETWEEN_DRAWINGS_S if self._on_terminal() else BETWEEN_LINES_S
                due = now - self._drawn_s >= between
            if due:
                self._draw(now)

    def close(self) -> None:
        """Take the line away; nothing is drawn from here on."""
        self._first.cancel()
        with self._lock:
            self._closed = True
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def _say_first(self) -> None:
        with self._lock:
            if self._drawn_s is None and self._phase:
                self._draw(self._clock())

    def _on_terminal(self) -> bool:
        return bool(getattr(self._stream, "isatty", lambda: False)())

    def _draw(self, now: float) -> None:
        if self._closed:
            return
        self._drawn_s = now
        done, wanted = self._count
        try:
            if self._on_terminal():
                self._draw_bar(done, wanted)
            else:
                count = f", {done} of {wanted}" if wanted > 1 else ""
                elapsed_s = now - self._begin_s
                self._stream.write(f"gobrrr: {self._phase}{count} ({elapsed_s:.0f} s so far)\n")
                self._stream.flush()
        except (OSError, ValueError):
            # Whoever read it has left, or it was closed: the measurement goes on.
            self._closed = True

    def _draw_bar(self, done: int, wanted: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        if self._bar is None:
            # Drawn when told to: a thread of its own would take the interpreter from the step.
            self._bar = Bar(
                TextColumn("gobrrr: {task.description}"), BarColumn(24), MofNCompleteColumn(),
                TimeElapsedColumn(), console=Console(file=self._stream), auto_refresh=False,
                transient=True, redirect_stdout=False, redirect_stderr=False,
            )  # fmt: skip
            self._bar.start()
            self._bar.add_task("")
        self._bar.update(
            self._bar.task_ids[0], description=self._phase, completed=done, total=max(1, wanted)
        )
        self._bar.refresh()
