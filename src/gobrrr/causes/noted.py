"""Notes of what the main thread runs: the share that some of them take, with its interval."""

from __future__ import annotations

import linecache
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from gobrrr.capture.program_facts import NoteFact
from gobrrr.fixes.facts import Facts

# Fewer notes than these may be chance.
_FEWEST = 3
# Of a normal distribution, for an interval of 95 %.
_Z = 1.96
_LINE = re.compile(r"(?P<path>.+):(?P<number>\d+) in (?P<function>.*)")


@dataclass(frozen=True, slots=True)
class Noted:
    """Some of the notes: their share of the wall time, between which shares, and their lines."""

    share: float
    low: float
    high: float
    lines: tuple[str, ...]
    callees: tuple[str, ...]
    count: int


def noted(facts: Facts, wanted: Callable[[NoteFact], bool]) -> Noted | None:
    """Those that are ``wanted``; ``None``: too few to tell."""
    program = facts.program
    found = [] if program is None else [note for note in program.notes if wanted(note)]
    count = sum(note.count for note in found)
    if program is None or count < _FEWEST:
        return None
    share = sum(note.share for note in found)
    low, high = _interval(share, program.notes_taken)
    lines: Counter[str] = Counter()
    callees: Counter[str] = Counter()
    for note in found:
        lines[note.line] += note.count
        callees[note.callee] += note.count
    return Noted(
        share, low, high,
        tuple(line for line, _ in lines.most_common(3) if line),
        tuple(callee for callee, _ in callees.most_common(3) if callee),
        count,
    )  # fmt: skip


def _interval(share: float, taken: int) -> tuple[float, float]:
    """Wilson's interval of a share of so many notes.

    >>> [round(each, 2) for each in _interval(0.5, 100)]
    [0.4, 0.6]
    """
    z2 = _Z * _Z
    middle = (share + z2 / (2 * taken)) / (1 + z2 / taken)
    reach = _Z * math.sqrt(share * (1 - share) / taken + z2 / (4 * taken**2)) / (1 + z2 / taken)
    return max(0.0, min(middle - reach, share)), min(1.0, max(middle + reach, share))


class Place(NamedTuple):
    """What ``train.py:31 in main`` says."""

    path: str
    number: int
    function: str


def place_of(line: str) -> Place | None:
    """A line's file, number and function; ``None`` of what is no line.

    >>> place_of("train.py:31 in main")
    Place(path='train.py', number=31, function='main')
    """
    found = _LINE.match(line)
    if found is None:
        return None
    return Place(found["path"], int(found["number"]), found["function"])


def text_of(line: str) -> str:
    """The source of ``train.py:31 in main``; empty where it cannot be read."""
    where = place_of(line)
    return "" if where is None else linecache.getline(where.path, where.number)


def starts_with(name: str, *packages: str) -> bool:
    """Whether a function is one of these packages'."""
    return any(name == each or name.startswith(f"{each}.") for each in packages)
