"""The repeating cycle in a sequence of events: which of several optimizers ends a step."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable


class CycleFinder:
    """Finds the shortest cycle that the latest events repeat.

    A GAN steps its discriminator five times and its generator once: ``DDDDDG``. The cycle must
    repeat ``repeats`` times and hold every participant that has come up more than once, or the run
    of ``D`` alone would pass for it.
    """

    def __init__(self, repeats: int = 3, longest: int = 512) -> None:
        self._repeats = repeats
        self._longest = longest
        self._events: deque[Hashable] = deque(maxlen=repeats * longest)
        self._seen: Counter[Hashable] = Counter()
        self._cycle: tuple[Hashable, ...] = ()
        self._position = 0

    @property
    def cycle(self) -> tuple[Hashable, ...]:
        """The cycle, ending with the event that ends a step; empty while unknown."""
        return self._cycle

    def push(self, event: Hashable) -> bool:
        """Add an event; true if it ends a cycle. A surprise forgets the cycle."""
        self._events.append(event)
        self._seen[event] += 1
        if self._cycle:
            if event == self._cycle[self._position]:
                self._position = (self._position + 1) % len(self._cycle)
                return self._position == 0
            self._cycle = ()
        self._search()
        return bool(self._cycle)

    def _search(self) -> None:
        events = list(self._events)
        end = len(events)
        for period in range(1, min(self._longest, end // self._repeats) + 1):
            # Nearly every period fails here, and there may be hundreds for each event.
            if self._repeats > 1 and events[-1 - period] != events[-1]:
                continue
            last = events[-period:]
            repeated = all(
                events[end - (k + 1) * period : end - k * period] == last
                for k in range(1, self._repeats)
            )
            if repeated and self._regulars() <= set(last):
                self._cycle, self._position = tuple(last), 0
                return

    def _regulars(self) -> set[Hashable]:
        return {event for event, count in self._seen.items() if count > 1}
