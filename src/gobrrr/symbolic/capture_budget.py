"""A capture ends: after so much of the processor's time it stops, with the line it had come to."""

from __future__ import annotations

import time
from collections.abc import Callable

from gobrrr.timeline.errors import CaptureError

# About a million operators: steps of the largest networks have a hundred thousand.
LONGEST_S = 600.0
# Operators between two looks at the clock.
_OPS_BETWEEN = 256


class CaptureBudget:
    """Counts operators, set-up included.

    Args:
        longest_s: processor time, so that a busy machine does not matter.
        clock: seconds of processor time.
    """

    def __init__(
        self, longest_s: float = LONGEST_S, clock: Callable[[], float] = time.process_time
    ) -> None:
        self._longest_s = longest_s
        self._clock = clock
        self._since = clock()
        self._ops = 0

    def spend(self, where: Callable[[], str]) -> None:
        """One more operator; ``where`` gives the program's line.

        Raises CaptureError when the time is over.
        """
        self._ops += 1
        if self._ops % _OPS_BETWEEN or self._clock() - self._since < self._longest_s:
            return
        line = where()
        at = f" ({line})" if line else ""
        raise CaptureError(
            f"gobrrr stopped after capturing the program for {self._longest_s / 60:.0f} minutes: "
            f"{self._ops:,} operators so far, and no end{at}; predict a smaller part of it, such "
            "as one layer or fewer turns of the loop"
        )
