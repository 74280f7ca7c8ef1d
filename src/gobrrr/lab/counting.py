"""What a function does by gobrrr's own formulas: FLOPs and bytes of the operators it calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gobrrr.observe.op_recorder import OpRecorder
from gobrrr.work import work_of


@dataclass(frozen=True)
class Counted:
    """Sums over the operators of one call; ``None`` if an operator has no formula.

    Attributes:
        flops: on the matrix unit and elsewhere.
        bytes_moved: read and written, each operator for itself.
        special: evaluations of a transcendental function.
        ops: operators that do work.
    """

    flops: float | None
    bytes_moved: float | None
    special: float
    ops: int


def count(call: Callable[[], object]) -> Counted:
    """Records one call and adds up its work."""
    with OpRecorder() as recorder:
        call()
    flops: float | None = 0.0
    moved: float | None = 0.0
    special, ops = 0.0, 0
    for op in recorder.ops:
        work = work_of(op.call)
        if work is None or work.flops is None or work.bytes_moved is None:
            flops = moved = None
            break
        if not work.bytes_moved:
            continue
        assert flops is not None and moved is not None
        flops += work.flops
        moved += work.bytes_moved
        special += work.special
        ops += 1
    return Counted(flops, moved, special, ops)
