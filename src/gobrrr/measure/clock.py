"""The clock that measurements read, injected so that tests decide what time it is."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol


class Clock(Protocol):
    """Anything that tells monotonic time."""

    def now_ns(self) -> int:
        """Nanoseconds since an arbitrary start; never decreases."""
        ...


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The machine's own monotonic clock."""

    def now_ns(self) -> int:
        """``time.perf_counter_ns``."""
        return time.perf_counter_ns()


@dataclass(slots=True)
class FakeClock:
    """A clock that stands still until it is advanced, for tests.

    Attributes:
        time_ns: what it shows.
    """

    time_ns: int = field(default=0)

    def now_ns(self) -> int:
        """The time set so far."""
        return self.time_ns

    def advance(self, duration_ns: int) -> None:
        """Move on by ``duration_ns``; raises ``ValueError`` if that is negative."""
        if duration_ns < 0:
            raise ValueError(f"a clock does not go back: {duration_ns} ns")
        self.time_ns += duration_ns
