"""Masks and indices that Python counts out number by number: comprehensions and nested loops."""

from __future__ import annotations

import linecache
import re

from gobrrr.capture.program_facts import MadeFact, NoteFact
from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.causes.noted import noted, place_of
from gobrrr.causes.source_text import statement_at
from gobrrr.fixes.facts import Facts
from gobrrr.timeline.quantities import count, percent, time_text

# Lists of fewer numbers are settings, labels, prompts.
_FEWEST_NUMBERS = 1000
# The least that arange, a compare and what else makes the same numbers take.
_LEFT_S = 50e-6
_COMPREHENSION = re.compile(r"[\[(].*\bfor\b.+\bin\b|\.append\(")


def _find(facts: Facts) -> Found | None:
    program = facts.program
    if program is None or not program.recorded:
        return None
    made = [
        each
        for each in program.made
        if each.given == "list of numbers" and each.elements >= _FEWEST_NUMBERS and each.line
    ]
    if not made:
        return None
    lines = tuple(dict.fromkeys(each.line for each in made))
    taken_s = sum(each.seconds for each in made) / program.recorded
    looks = noted(facts, lambda note: any(_makes(note, line) for line in lines))
    # Looks see the lists as well, which torch.tensor is given ready.
    if looks is not None:
        in_step_s = looks.share * facts.step_s / max(facts.steps_share, 1e-9)
        taken_s = max(taken_s, in_step_s)
    # No kernel runs meanwhile.
    taken_s = min(taken_s, facts.leaf_s("overhead"))
    numbers = sum(each.elements for each in made) / program.recorded
    left_s = _LEFT_S * len(made) / program.recorded
    return saves(
        f"Python counts out {count(round(numbers))} numbers a step, and torch.{_function(made)} "
        f"walks their lists: {time_text(taken_s)} ({percent(taken_s / facts.step_s)} of the step)",
        lines[:3], 0.6 * (taken_s - left_s), 0.9 * (taken_s - left_s), taken_s,
    )  # fmt: skip


def _function(made: list[MadeFact]) -> str:
    return made[0].function


def _makes(note: NoteFact, line: str) -> bool:
    """Whether a look was at the statement that makes the tensor, or at a list in its function."""
    where, made = place_of(note.line), place_of(line)
    if where is None or made is None or where.path != made.path:
        return False
    first, last = statement_at(made.path, made.number)
    if first <= where.number <= last:
        return True
    text = linecache.getline(where.path, where.number)
    return where.function == made.function and bool(_COMPREHENSION.search(text))


TENSOR_FROM_PYTHON = Cause(
    name="tensor_from_python",
    title="a mask or indices are counted out by Python, number by number (comprehension, arange)",
    words=("list comprehension", "torch.tensor of a Python list slow", "torch.arange",
           "attention mask slow", "broadcast compare"),
    find=_find,
    remedy="torch.arange and a broadcast compare (i[:, None] >= i), torch.randint, tril; once "
    "before the loop if it never changes",
)  # fmt: skip
