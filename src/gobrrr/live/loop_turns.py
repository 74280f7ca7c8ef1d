"""How many turns of the user's loop a cycle of events is, by where in the code each happened.

A place is the stack of the user's functions, each with the instruction that it is at. From one
event to the next the program has gone forward, or back to the beginning of a loop: which loop, the
code of the functions says (its backward jumps).
"""

from __future__ import annotations

import dis
from collections.abc import Sequence
from functools import lru_cache
from types import CodeType, FrameType
from typing import NamedTuple

from gobrrr.observe.source_lines import format_line, is_user_file

Place = tuple[tuple[CodeType, int], ...]
_DEEPEST = 64


class Loop(NamedTuple):
    """A loop of a function: its first and its last instruction, by their offsets."""

    code: CodeType
    begin: int
    end: int
    depth: int


class Turns(NamedTuple):
    """So many turns of the loop at ``line``."""

    number: int
    line: str


def place_of(frame: FrameType | None) -> Place:
    """Where the user's functions are, the outermost first."""
    found: list[tuple[CodeType, int]] = []
    while frame is not None and len(found) < _DEEPEST:
        if is_user_file(frame.f_code.co_filename):
            found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(reversed(found))


def turns_of(cycle: Sequence[Place]) -> Turns | None:
    """The turns of the outermost loop that the events of a cycle go round; ``None``: unknown."""
    events = list(cycle)
    taken = [_taken(a, b) for a, b in zip(events, [*events[1:], *events[:1]])]
    loops = [loop for loop in taken if loop is not None]
    if not loops:
        return None
    outer = min(loops, key=lambda loop: (loop.depth, loop.begin - loop.end))
    line = format_line(outer.code.co_filename, _line(outer), outer.code.co_name)
    return Turns(loops.count(outer), line)


def _taken(before: Place, after: Place) -> Loop | None:
    """The loop that the program went back to the beginning of; ``None``: it went forward."""
    shared = 0
    for (code, _), (other, _) in zip(before, after):
        if code is not other:
            break
        shared += 1
        if before[shared - 1][1] != after[shared - 1][1]:
            break
    for depth in reversed(range(shared)):
        code, at = before[depth]
        then = after[depth][1]
        if then > at:
            return None
        around = [(b, e) for b, e in loops_of(code) if b <= then and at <= e]
        if around:
            begin, end = max(around, key=lambda loop: loop[0] - loop[1])
            return Loop(code, begin, end, depth)
        # No loop here leads back: the function was called anew, from a loop further out.
    return None


@lru_cache(maxsize=256)
def loops_of(code: CodeType) -> tuple[tuple[int, int], ...]:
    """First and last instruction of each loop of a function."""
    ends: dict[int, int] = {}
    for step in dis.get_instructions(code):
        jumps = step.opcode in dis.hasjrel or step.opcode in dis.hasjabs
        if jumps and isinstance(step.argval, int) and step.argval < step.offset:
            ends[step.argval] = max(ends.get(step.argval, 0), step.offset)
    return tuple(sorted(ends.items()))


def _line(loop: Loop) -> int:
    lines = [line for begin, _, line in loop.code.co_lines() if begin >= loop.begin and line]
    return lines[0] if lines else loop.code.co_firstlineno
