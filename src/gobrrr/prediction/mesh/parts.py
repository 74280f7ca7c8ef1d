"""Some of a step's ops, replayed by themselves: what one stage of a pipeline runs at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gobrrr.prediction.step.costs import CostedOp
from gobrrr.prediction.step.host_lane import HostCosts
from gobrrr.prediction.step.timeline import replayed
from gobrrr.timeline.streams import step_before


def seconds_of(
    ops: Sequence[CostedOp],
    positions: Sequence[int],
    host: HostCosts,
    known: dict[Any, float] | None = None,
) -> float:
    """How long these ops take by themselves, one microbatch after the other.

    ``known``: by what is replayed, what came of it: stages with the same blocks are alike.
    """
    own = [ops[at] for at in positions]
    if not any(each.kernels for each in own):
        return 0.0
    one = positions[0]
    same = tuple(
        (
            each.cost, each.before, each.op.phase, each.op.stream,
            *(at - one if at >= 0 else at for at in each.op.after),
        )
        for each in own
    )  # fmt: skip
    known = {} if known is None else known
    if same not in known:
        known[same] = float(replayed(part_of(ops, positions), host).ops.end_s.max())
    return known[same]


def part_of(
    ops: Sequence[CostedOp], positions: Sequence[int], before: Sequence[CostedOp] = ()
) -> list[CostedOp]:
    """Some of the ops in their order; what they wait for among themselves is kept.

    ``before``: the ops that stand before them where they are put: what waits for all that a stream
    ran before waits for the last of these, or else for the step before.
    """
    place = {at: len(before) + number for number, at in enumerate(positions)}
    last = {one.op.stream: at for at, one in enumerate(before)}
    place |= {step_before(stream): at for stream, at in last.items()}
    return [
        replace(
            ops[at],
            op=replace(
                ops[at].op,
                after=tuple(
                    place.get(other, other)
                    for other in ops[at].op.after
                    if other in place or other < 0
                ),
            ),
        )
        for at in positions
    ]
