"""Wait for a moment in which this machine has nothing else to do."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

_STAT = Path("/proc/stat")

Case = TypeVar("Case")


def wait_until_quiet(patience_s: float, busy_at_most: float = 0.05, window_s: float = 0.25) -> bool:
    """Sleep until the processors were idle for a moment, or ``patience_s`` is over.

    Returns whether they were. True at once where the system does not say (no ``/proc/stat``).
    """
    end = time.monotonic() + patience_s
    while True:
        before = _ticks()
        if before is None:
            return True
        time.sleep(window_s)
        after = _ticks()
        assert after is not None
        busy, total = after[0] - before[0], after[1] - before[1]
        if total and busy / total <= busy_at_most:
            return True
        if time.monotonic() > end:
            return False


@dataclass
class Pace:
    """When to start the next case, and when to stop.

    Attributes:
        patience_s: longest wait for a quiet moment before each case.
        end: monotonic time after which no case begins; the cases are shuffled, so that rounds cut
            short add up to all of them.
    """

    patience_s: float
    end: float = math.inf

    def begin(self, cases: Sequence[Case]) -> Iterator[Case]:
        """The cases in random order, each after a wait."""
        for case in random.sample(list(cases), len(cases)):
            if time.monotonic() > self.end:
                return
            wait_until_quiet(self.patience_s)
            yield case


def _ticks() -> tuple[int, int] | None:
    """Ticks that were not idle, and all, since the machine started."""
    if not _STAT.exists():
        return None
    fields = [int(field) for field in _STAT.read_text().splitlines()[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return sum(fields) - idle, sum(fields)
