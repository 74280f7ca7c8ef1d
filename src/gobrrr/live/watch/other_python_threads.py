"""Python threads of the program beside the one that steps: how busy they are, and at which line."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from pathlib import Path

from gobrrr.observe.program_facts import ThreadFact
from gobrrr.observe.source_lines import format_line, is_user_file, user_line

# One look in so many notes of lines, a second or so apart where nothing is busy.
_EVERY = 10
# A thread that used less of the time since the last look is not asked where it is.
_BUSY = 0.05
_MOST_THREADS = 64
# Those of threads that run may be half made in CPython 3.11 and before (see ``sampler``); there the
# line is the one at which a thread's function begins.
_FRAMES_ARE_WHOLE = sys.hexversion >= 0x030C0000


class OtherThreads:
    """Looks at them now and then; ``look`` is called in a thread of gobrrr's."""

    def __init__(self) -> None:
        self._calls = 0
        # The program's own loop, as ``threading`` numbers it.
        self.loop = threading.main_thread().ident
        self._used: dict[int, tuple[int, int]] = {}
        self._first: dict[int, tuple[int, int]] = {}
        self._lines: dict[int, Counter[str]] = {}
        self._names: dict[int, tuple[str, str]] = {}

    def look(self) -> None:
        """One look, in one of several calls."""
        self._calls += 1
        if self._calls % _EVERY:
            return
        others = [
            thread
            for thread in threading.enumerate()[:_MOST_THREADS]
            if thread.ident != self.loop and thread.native_id is not None
        ]
        busy = [thread for thread in others if self._is_busy(thread)]
        if not busy or not _FRAMES_ARE_WHOLE:
            return
        frames = sys._current_frames()
        for thread in busy:
            line = user_line(frames.get(thread.ident or 0))
            if line is not None:
                self._lines.setdefault(thread.native_id or 0, Counter())[line] += 1

    def _is_busy(self, thread: threading.Thread) -> bool:
        native = thread.native_id or 0
        used_ns, now = processor_ns(native), time.perf_counter_ns()
        if used_ns is None:
            return False
        before = self._used.get(native)
        self._used[native] = used_ns, now
        if before is None:
            self._first[native] = used_ns, now
            self._names[native] = thread.name, _begins(thread)
            return False
        return used_ns - before[0] > _BUSY * (now - before[1])

    def facts(self) -> tuple[ThreadFact, ...]:
        """Those that run the user's code, the busiest first."""
        found = []
        for native, (used_ns, now) in self._used.items():
            first_ns, since = self._first[native]
            name, begins = self._names[native]
            lines = self._lines.get(native)
            line = lines.most_common(1)[0][0] if lines else begins
            if line and now > since:
                found.append(ThreadFact(name, line, (used_ns - first_ns) / (now - since)))
        return tuple(sorted(found, key=lambda fact: -fact.busy))


def processor_ns(native_id: int) -> int | None:
    """Processor time of a thread of this process; ``None``: it has ended, or nothing tells."""
    # The first field of schedstat (Documentation/scheduler/sched-stats.rst of Linux).
    try:
        return int(Path(f"/proc/self/task/{native_id}/schedstat").read_bytes().split()[0])
    except (OSError, IndexError, ValueError):
        return None


def _begins(thread: threading.Thread) -> str:
    """The line at which the function that a thread runs begins, if it is the user's."""
    function = getattr(thread, "_target", None) or getattr(type(thread), "run", None)
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None or not is_user_file(code.co_filename):
        return ""
    return format_line(code.co_filename, code.co_firstlineno, code.co_name)
