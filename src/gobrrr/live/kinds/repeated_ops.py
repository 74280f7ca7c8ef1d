"""One step recorded beside others: which of its ops had other arguments there, and which grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gobrrr.live.measurements import RecordedStep
from gobrrr.timeline.align import match
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import TensorSpec

_CONCATENATION = "aten::cat"


def with_varying(step: RecordedStep, others: Sequence[RecordedStep]) -> list[StepOp]:
    """The ops with what the same ops of other steps tell (``StepOp.varies``, ``StepOp.grows``)."""
    ops = step.ops
    names = [op.call.name for op in ops]
    varies: list[bool | None] = [None] * len(ops)
    grows = [False] * len(ops)
    for other in others:
        apart = abs(other.window - step.window)
        for op, place in zip(other.ops, match([o.call.name for o in other.ops], names).tolist()):
            if place >= 0:
                varies[place] = bool(varies[place]) or _differ(ops[place], op)
                first = other.window < step.window
                earlier, later = (op, ops[place]) if first else (ops[place], op)
                grows[place] = grows[place] or _grown(earlier, later, apart)
    return [
        op if told is None else replace(op, varies=told, grows=grown)
        for op, told, grown in zip(ops, varies, grows)
    ]


def may_grow(ops: Sequence[StepOp]) -> bool:
    """Whether most of what some op puts together was there before the step, which may be its own.

    What the same op is given in the next step tells.
    """
    # What has no memory of its own tells nothing.
    made: set[int | None] = {None}
    for op in ops:
        largest = _largest(op)
        if largest is not None and op.source and largest.storage not in made:
            return True
        # A view is in memory that was there.
        made |= {spec.storage for spec in op.call.outputs or ()} - {
            spec.storage for spec in op.call.tensors
        }
    return False


def _grown(earlier: StepOp, later: StepOp, apart: int) -> bool:
    """Whether what a concatenation is given is what it made itself, so many steps earlier.

    Steps in between have added as much as the earlier one.
    """
    before, now = _largest(earlier), _largest(later)
    made = earlier.call.outputs
    if before is None or now is None or not made or not later.source:
        return False
    if later.source != earlier.source or now.dtype != made[0].dtype:
        return False
    result = made[0].shape
    along = [i for i, (old, new) in enumerate(zip(before.shape, result)) if old != new]
    if len(before.shape) != len(result) or len(along) != 1:
        return False
    dimension = along[0]
    expected = list(result)
    expected[dimension] += (apart - 1) * (result[dimension] - before.shape[dimension])
    return now.shape == tuple(expected)


def _largest(op: StepOp) -> TensorSpec | None:
    """Most of what an op puts together; ``None`` of one that puts nothing together."""
    put_together = op.call.name == _CONCATENATION
    given = [spec for spec in op.call.tensors if spec.numel] if put_together else []
    if len(given) < 2:
        return None
    largest = max(given, key=lambda spec: spec.numel)
    return largest if 2 * largest.numel >= sum(spec.numel for spec in given) else None


def _differ(one: StepOp, other: StepOp) -> bool:
    """Whether they were given other numbers or shapes, or gave the host another number.

    Storages and offsets are no part of it: memory comes back in any order.
    """
    return one.read != other.read or one.call.form[:2] != other.call.form[:2]
