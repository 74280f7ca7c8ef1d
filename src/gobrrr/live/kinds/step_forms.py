"""What a window does, in numbers: each window is looked at closely once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gobrrr.timeline.step_kinds import CallKey, StepWindow

# Calls that may come again and again as one group.
_LONGEST_REPEATED = 8

Alike = tuple[int, bool, bool]
Times = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Form:
    """What a window does, as numbers.

    Attributes:
        window: the window.
        keys: its calls; equal ones have the same number.
        runs: the same as ``runs_of``.
        members: the calls that each of ``runs`` stands for.
        times: begin and end of each call, in nanoseconds; a row each.
    """

    window: StepWindow
    keys: tuple[int, ...]
    runs: tuple[Alike, ...]
    members: tuple[tuple[int, ...], ...]
    times: Times

    def gaps(self, places: Sequence[int]) -> Times:
        """Begin and end of the stretches before, between and after the calls at these places."""
        found = np.empty((len(places) + 1, 2), np.int64)
        calls = self.times if len(places) == len(self.keys) else self.times[list(places)]
        found[0, 0], found[-1, 1] = self.window.begin_ns, self.window.end_ns
        found[1:, 0], found[:-1, 1] = calls[:, 1], calls[:, 0]
        return found


class Forming:
    """Makes forms of windows; equal calls have the same number in all of them."""

    def __init__(self) -> None:
        self._codes: dict[CallKey, int] = {}
        # The keys are kept: the number of one that is gone would be another one's.
        self._known: dict[int, tuple[int, CallKey]] = {}
        self._alike: list[Alike] = []

    def form_of(self, window: StepWindow) -> Form:
        """The form of a window."""
        keys = tuple(self._code(call.key) for call in window.calls)
        runs, members = _collapsed([self._alike[code] for code in keys])
        times = np.array([(call.begin_ns, call.end_ns) for call in window.calls], np.int64)
        return Form(window, keys, runs, members, times.reshape(-1, 2))

    def _code(self, key: CallKey) -> int:
        # Whoever watches calls gives the same object for all that are equal: hashing it takes 1 us.
        known = self._known.get(id(key))
        if known is not None:
            return known[0]
        code = self._codes.setdefault(key, len(self._alike))
        if code == len(self._alike):
            self._alike.append(key.alike)
        self._known[id(key)] = code, key
        return code


def _collapsed(
    calls: Sequence[Alike],
) -> tuple[tuple[Alike, ...], tuple[tuple[int, ...], ...]]:
    """Calls with what is repeated at once as one (``ABABB``: ``AB``), and what each stands for."""
    kept: list[Alike] = []
    members: list[list[int]] = []
    for place, call in enumerate(calls):
        kept.append(call)
        members.append([place])
        period = 1
        while period <= min(_LONGEST_REPEATED, len(kept) // 2):
            if kept[-1 - period] == call and kept[-period:] == kept[-2 * period : -period]:
                for into, repeated in zip(members[-2 * period : -period], members[-period:]):
                    into += repeated
                del kept[-period:], members[-period:]
                period = 0
            period += 1
    return tuple(kept), tuple(map(tuple, members))


def runs_of(window: StepWindow) -> tuple[Alike, ...]:
    """The calls of a window, those that are repeated at once as one."""
    return _collapsed([call.key.alike for call in window.calls])[0]
