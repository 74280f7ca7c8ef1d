"""One step recorded beside others: which of its ops had other arguments there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gobrrr.capture.align import match
from gobrrr.timeline.graph import StepOp


def with_varying(ops: list[StepOp], others: Sequence[Sequence[StepOp]]) -> list[StepOp]:
    """The ops with what the same ops of other steps tell (``StepOp.varies``)."""
    names = [op.call.name for op in ops]
    varies: list[bool | None] = [None] * len(ops)
    for other in others:
        for op, place in zip(other, match([op.call.name for op in other], names).tolist()):
            if place >= 0:
                varies[place] = bool(varies[place]) or _differ(ops[place], op)
    return [op if told is None else replace(op, varies=told) for op, told in zip(ops, varies)]


def _differ(one: StepOp, other: StepOp) -> bool:
    """Whether they were given other numbers or shapes, or gave the host another number.

    Storages and offsets are no part of it: memory comes back in any order.
    """
    return one.read != other.read or one.call.form[:2] != other.call.form[:2]
