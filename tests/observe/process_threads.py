"""The threads of this process as the system counts them: Python's own and all others."""

from __future__ import annotations

import time
from pathlib import Path


def system_threads() -> int:
    """How many there are now."""
    return len(list(Path("/proc/self/task").iterdir()))


def system_threads_once_ended(most: int) -> int:
    """How many there are once there are no more than these, or after ten seconds."""
    until = time.monotonic() + 10
    while system_threads() > most and time.monotonic() < until:
        time.sleep(0.01)
    return system_threads()
