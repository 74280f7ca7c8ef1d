"""The forward and backward passes of a step, by the updates that they end in."""

from __future__ import annotations

from gobrrr.diagnosis.facts import Facts, OpFact

Passes = list[list[OpFact]]


def updates_of(facts: Facts) -> list[Passes]:
    """For each update of the step its passes, forward and backward together, with their ops."""
    found: list[Passes] = [[]]
    last = ""
    for op in facts.ops:
        if op.phase == "optimizer" and found[-1]:
            found.append([])
        elif op.phase in ("forward", "backward"):
            if not found[-1] or (op.phase == "forward" and last == "backward"):
                found[-1].append([])
            found[-1][-1].append(op)
            last = op.phase
    return [passes for passes in found if passes]


def passes_of(facts: Facts) -> list[Passes]:
    """The same, without forward passes that no backward pass follows."""
    return [
        [ops for ops in passes if any(op.phase == "backward" for op in ops)]
        for passes in updates_of(facts)
    ]
