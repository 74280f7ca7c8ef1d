"""Notes of what the main thread runs: the share that some of them take, with its interval."""

from __future__ import annotations

import linecache
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from gobrrr.diagnosis.facts import Facts
from gobrrr.observe.program_facts import NoteFact

# Fewer notes than these may be chance.
_FEWEST = 3
# So many say that what none of them saw is rare.
_MANY = 50
# Of a normal distribution, for an interval of 95 %.
_Z = 1.96
_BACKWARD = re.compile(r"\bbackward\s*\(")
_FUNCTION = re.compile(r"\s*(async )?def (?P<name>\w+)")
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


def most_at(facts: Facts, lines: Iterable[str]) -> float:
    """Seconds of a step that some lines can take, by how often the main thread was seen at them.

    One look more than there were: of few looks nothing follows, and it is the whole step.
    """
    program = facts.program
    taken = 0 if program is None else program.notes_taken
    if program is None or taken < _MANY:
        return facts.step_s
    wanted = {place[:2] for line in lines if (place := place_of(line)) is not None}
    share = sum(
        note.share
        for note in program.notes
        if (place := place_of(note.line)) is not None and place[:2] in wanted
    )
    return min(1.0, (share + 1 / taken) / max(facts.steps_share, 1e-9)) * facts.step_s


def _interval(share: float, taken: int) -> tuple[float, float]:
    """Wilson's interval of a share of so many notes.

    >>> [round(each, 2) for each in _interval(0.5, 100)]
    [0.4, 0.6]
    """
    z2 = _Z * _Z
    middle = (share + z2 / (2 * taken)) / (1 + z2 / taken)
    reach = _Z * math.sqrt(share * (1 - share) / taken + z2 / (4 * taken**2)) / (1 + z2 / taken)
    return max(0.0, min(middle - reach, share)), min(1.0, max(middle + reach, share))


def most_saved(facts: Facts) -> float:
    """The largest share of the wall time that a line of the host's can cost.

    A device computes on while the host is busy or waits for it: what it does not idle is not saved.
    """
    if not facts.on_gpu or facts.step_s <= 0:
        return 1.0
    idle = min(1.0, facts.host_overhead_s / facts.step_s)
    return (1 - facts.steps_share) + facts.steps_share * idle


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


def lines_saying(facts: Facts, *words: str) -> tuple[str, ...]:
    """The lines, of the files whose lines are known, that say one of these words in code."""
    notes = () if facts.program is None else facts.program.notes
    known = (*(note.line for note in notes), *(op.source for op in facts.ops))
    paths = dict.fromkeys(found["path"] for line in known if (found := _LINE.match(line)))
    said = []
    for path in paths:
        function, indent = "<module>", 0
        for number, text in enumerate(linecache.getlines(path), 1):
            code = text.partition("#")[0]
            depth = len(code) - len(code.lstrip())
            if code.strip() and depth <= indent and not code.lstrip().startswith((")", "]", "}")):
                function, indent = "<module>", 0
            if (defined := _FUNCTION.match(code)) is not None:
                function, indent = defined["name"], depth
            is_code = not code.lstrip().startswith(("import ", "from ", '"', "'"))
            if is_code and any(word in code for word in words):
                said.append(f"{path}:{number} in {function}")
    return tuple(said)


def goes_back(line: str) -> bool:
    """Whether a line calls ``backward``."""
    return bool(_BACKWARD.search(text_of(line)))


def loader_made(facts: Facts) -> tuple[str, ...]:
    """Where a loader is made; nothing where that is not seen."""
    return lines_saying(facts, "DataLoader(")[:1]


def loader_lines(facts: Facts) -> tuple[str, ...]:
    """Where a step waits for data, and where a loader is made, which is what one would change."""
    waits = [idle.source for idle in facts.idle if idle.cause == "data_loading" and idle.source]
    return tuple(dict.fromkeys((*waits[:2], *loader_made(facts))))


def starts_with(name: str, *packages: str) -> bool:
    """Whether a function is one of these packages'."""
    return any(name == each or name.startswith(f"{each}.") for each in packages)
