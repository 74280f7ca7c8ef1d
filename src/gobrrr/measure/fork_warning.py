"""Python's warning of a fork in a process of several threads, without gobrrr's own threads.

Python 3.12 and later count the threads of the process at each fork. A script of one thread that
runs under gobrrr has more of them, and would show a warning that it does not show by itself.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

_TEXT = "This process (pid={}) is multi-threaded, use of fork() may lead to deadlocks in the child."
_IGNORE = ("ignore", re.compile(r"This process \(pid=\d+\) is multi-threaded"),
           DeprecationWarning, None, 0)  # fmt: skip


class _Fork(threading.local):
    """What is done around each fork, in the thread that forks.

    Args:
        own: how many threads of gobrrr's run.
    """

    def __init__(self, own: Callable[[], int]) -> None:
        self._own = own
        self._ignores = False

    def before(self) -> None:
        self._ignores = self._own() > 0
        if self._ignores:
            # In place: the functions for this forget which warnings have been shown once.
            warnings.filters.insert(0, _IGNORE)  # type: ignore[attr-defined]

    def after(self) -> None:
        if self._ignores:
            self._ignores = False
            with contextlib.suppress(ValueError):
                warnings.filters.remove(_IGNORE)  # type: ignore[attr-defined]

    def after_in_parent(self) -> None:
        """Threads may end for a fork (OpenBLAS's do): they are counted here, as Python does."""
        ignored = self._ignores
        self.after()
        if ignored and _others(self._own()) > 1:
            # As an error it ends no fork either.
            with contextlib.suppress(DeprecationWarning):
                warnings.warn(_TEXT.format(os.getpid()), DeprecationWarning, stacklevel=2)


def _others(own: int) -> int:
    """Threads of this process but for these of gobrrr's."""
    try:
        return sum(1 for _ in Path("/proc/self/task").iterdir()) - own
    except OSError:  # not on Linux: Python's, among which gobrrr's are not
        return threading.active_count()


def count_without(own: Callable[[], int]) -> None:
    """From now on forks warn of threads that are not among these; once in a process."""
    if sys.version_info >= (3, 12) and hasattr(os, "register_at_fork"):
        fork = _Fork(own)
        os.register_at_fork(
            before=fork.before, after_in_parent=fork.after_in_parent, after_in_child=fork.after
        )
