"""Masks and indices that Python counts out number by number: comprehensions and nested loops."""

from __future__ import annotations

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.causes.noted import most_at, noted, place_of, starts_with
from gobrrr.causes.source_text import counted_before
from gobrrr.diagnosis.facts import Facts
from gobrrr.observe.program_facts import NoteFact
from gobrrr.timeline.quantities import count, percent, time_text

# Lists of fewer numbers are settings, labels, prompts.
_FEWEST_NUMBERS = 1000
# The least that arange, a compare and what else makes the same numbers take.
_LEFT_S = 50e-6
# What counts numbers out calls; any other function may be an environment, a tokenizer, a library.
_COUNTING = frozenset(
    ("range", "append", "extend", "len", "int", "float", "bool", "min", "max", "abs", "sum", "list",
     "tuple", "enumerate", "zip", "reversed", "random", "randint", "randrange", "uniform", "gauss",
     "choice", "choices", "sample", "shuffle", "sqrt", "sin", "cos", "exp", "log", "floor")
)  # fmt: skip


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
    # One slow moment of the recorded step would pass for all of them.
    taken_s = min(sum(each.seconds for each in made) / program.recorded, most_at(facts, lines))
    counting = [line for line in lines if _counts_out(line)]
    looks = noted(facts, lambda note: any(_makes(note, line) for line in counting))
    # Looks see the lists as well, which torch.tensor is given ready.
    if looks is not None:
        in_step_s = looks.share * facts.step_s / max(facts.steps_share, 1e-9)
        taken_s = max(taken_s, in_step_s)
    # No kernel runs meanwhile.
    taken_s = min(taken_s, facts.leaf_s("overhead"))
    numbers = sum(each.elements for each in made) / program.recorded
    left_s = _LEFT_S * len(made) / program.recorded
    counted = count(round(numbers))
    walks = f"torch.{made[0].function} walks lists of {counted} numbers a step"
    if counting:
        walks = f"Python counts out {counted} numbers a step, and torch.{made[0].function} walks "
        walks += "their lists"
    return saves(
        walks,
        lines[:3], 0.6 * (taken_s - left_s), 0.9 * (taken_s - left_s), taken_s,
        f"{time_text(taken_s)} ({percent(taken_s / facts.step_s)} of the step)",
    )  # fmt: skip


def _counts_out(line: str) -> bool:
    """Whether the numbers of the tensor made at a line are counted, in the same function."""
    made = place_of(line)
    if made is None:
        return False
    return any(counts for *_, counts in counted_before(made.path, made.number, _COUNTING))


def _makes(note: NoteFact, line: str) -> bool:
    """Whether a look was at the statement that makes the tensor, or at one that makes its lists."""
    where, made = place_of(note.line), place_of(line)
    if where is None or made is None or where.path != made.path:
        return False
    if note.callee and not starts_with(note.callee, "random"):
        # A library is running.
        return False
    found = counted_before(made.path, made.number, _COUNTING)
    return any(first <= where.number <= last for first, last, _ in found)


TENSOR_FROM_PYTHON = Cause(
    name="tensor_from_python",
    title="a mask or indices are counted out by Python, number by number (comprehension, arange)",
    words=("list comprehension", "torch.tensor of a Python list slow", "torch.arange",
           "attention mask slow", "broadcast compare"),
    find=_find,
    remedy="torch.arange and a broadcast compare (i[:, None] >= i), torch.randint, tril; once "
    "before the loop if it never changes",
)  # fmt: skip
