"""Steps at whose ends nothing but a clock and a counter are read, and a device's event is made.

What tells steps apart costs some ten microseconds in each: hooks on its modules, and what the
bookkeeping between two steps takes from the caches. Of a step of a millisecond that is a part, so
some are timed with all of it gone. Nothing is known of what such a step does: whether it is of the
usual kind is told by the steps before and after.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from gobrrr.live.accelerators import capturing
from gobrrr.measure.process_counters import minor_faults

# Above this length of a step the hooks are less than a hundredth of it.
SHORT_STEP_S = 0.01
# A block ends when it has taken so many times as long as was expected: steps may have grown.
_MUCH_LONGER = 4.0


@dataclass(frozen=True, slots=True)
class BareBlock:
    """Lengths, page faults and ends of bare steps in a row; ends on ``time.perf_counter_ns``.

    The lengths are those on the steps' own device, by its clock.
    """

    lengths_ns: list[int]
    faults: list[int]
    ended_ns: list[int]


class BareSteps:
    """Notes the ends of steps, in memory that is there before the first of them.

    Args:
        wanted: so many steps; the end before the first is noted too.
        step_s: how long one is expected to be.
        of: what ends them: an optimizer, a module.
    """

    def __init__(self, wanted: int, step_s: float, of: object) -> None:
        self._ended_ns, self._faults = (array("q", bytes(8 * (wanted + 1))) for _ in range(2))
        self._last, self._of = wanted, of
        self._thread = threading.get_ident()
        self._latest_ns = time.perf_counter_ns() + int(_MUCH_LONGER * (wanted + 1) * step_s * 1e9)
        # Ends that nobody else hears of, and all.
        self.unheard = self._ended = 0
        # Something else has ended meanwhile.
        self.surprised = False
        # Of a device: marks a step's end there too, as it marked the begin of the block.
        self.mark: Callable[[], None] | None = None

    def goes_on(self, of: object) -> bool:
        """A step ends, of the optimizer or module given; false if it is the last, or none of these.

        Also where steps have become much longer than expected.
        """
        here = of is self._of and threading.get_ident() == self._thread
        if not here or not self._is_marked():
            self.surprised = True
            return False
        at = self._ended
        # The counter first: it is the clock that the steps are told by.
        self._faults[at] = minor_faults()
        now = self._ended_ns[at] = time.perf_counter_ns()
        self._ended = at + 1
        if at == self._last or now > self._latest_ns:
            return False
        self.unheard += 1
        return True

    def _is_marked(self) -> bool:
        """Whether the device marks the end: not within a capture, which it would end."""
        if self.mark is None:
            return True
        if capturing():
            return False
        try:
            self.mark()
        except Exception:
            # This is inside a call of the program's: who waits for the device next will tell.
            return False
        return True

    def block(self) -> BareBlock:
        """The steps so far."""
        ended, faults = self._ended_ns[: self._ended], self._faults[: self._ended]
        lengths_ns = [b - a for a, b in pairwise(ended)]
        return BareBlock(lengths_ns, [b - a for a, b in pairwise(faults)], ended[1:].tolist())
