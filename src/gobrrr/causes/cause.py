"""A known cause: when it is there, the words that people search for, the remedy, what it saves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gobrrr.diagnosis.facts import Facts


@dataclass(frozen=True, slots=True)
class Found:
    """That a cause is there.

    Savings are never more than what the evidence holds; ``None`` where nothing supports a number.

    Attributes:
        evidence: one sentence, with the arithmetic; what it says of time stands in ``timed``.
        sources: the user's lines, the most important first.
        low_s: what the remedy saves at the least, seconds of a step; ``expected_s`` and ``high_s``
            likewise.
        share: of the wall time, what the cause takes; ``None``: what is saved of the steps is.
        wall_low: of the wall time, what the remedy saves at the least, where that is not of the
            steps that are diagnosed alone; ``wall_expected`` and ``wall_high`` likewise.
        timed: the rest of the sentence, which holds where the times are the program's.
    """

    evidence: str
    sources: tuple[str, ...] = ()
    low_s: float | None = None
    expected_s: float | None = None
    high_s: float | None = None
    share: float | None = None
    wall_low: float | None = None
    wall_expected: float | None = None
    wall_high: float | None = None
    timed: str = ""


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause that experts know.

    Attributes:
        name: what reports call it.
        title: one line, as it stands in the verdict: what happens, and the setting's name.
        words: what people search for.
        find: the evidence that it is there; ``None``: it is not.
        remedy: the change as a user would write it.
        verified_by: the fix that tries the remedy (``gobrrr fix --only``); empty: none does.
        warns: told whatever its saving: it makes figures wrong or is left on by mistake.
    """

    name: str
    title: str
    words: tuple[str, ...]
    find: Callable[[Facts], Found | None]
    remedy: str
    verified_by: str = ""
    warns: bool = False


def saves(
    evidence: str,
    sources: tuple[str, ...],
    low_s: float,
    expected_s: float,
    high_s: float,
    timed: str = "",
) -> Found:
    """Evidence with a saving of each step, put in order; none is negative."""
    high_s = max(high_s, 0.0)
    expected_s = min(max(expected_s, 0.0), high_s)
    low_s = min(max(low_s, 0.0), expected_s)
    return Found(evidence, sources, low_s, expected_s, high_s, timed=timed)


def saves_of_wall(
    evidence: str,
    sources: tuple[str, ...],
    low: float,
    expected: float,
    high: float,
    takes: float | None = None,
) -> Found:
    """Evidence with a saving of the wall time, as shares of it; ``takes``: by default ``high``."""
    high = min(max(high, 0.0), 1.0)
    expected = min(max(expected, 0.0), high)
    return Found(
        evidence, sources, share=high if takes is None else min(takes, 1.0),
        wall_low=min(max(low, 0.0), expected), wall_expected=expected, wall_high=high,
    )  # fmt: skip
