"""The work of recorded ops: of one step, and of the mean of steps that vary."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.attribution.mean_work import Float64, Recorded, mean_works
from gobrrr.live.measurements import StepKind
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall
from gobrrr.work import work_of
from gobrrr.work.estimate import Work


def works_of(recorded: Sequence[StepOp]) -> tuple[Work | None, ...]:
    """Work of each recorded op (each distinct call is computed once)."""
    known: dict[tuple[OpCall, tuple[int, ...]], Work | None] = {}
    found = []
    for op in recorded:
        key = (op.call, op.call.sharing)
        if key not in known:
            known[key] = work_of(op.call)
        found.append(known[key])
    return tuple(found)


def works_of_mean_step(
    recorded: Sequence[StepOp], works: tuple[Work | None, ...], kind: StepKind
) -> tuple[tuple[Work | None, ...], Float64, Float64]:
    """``mean_works`` of steps that vary: of the recorded one and of ``kind.others``."""
    steps: list[Recorded] = [(recorded, works, kind.others[0][1])]
    steps += [(ops, works_of(ops), share) for ops, share in kind.others[1:]]
    return mean_works(steps)
