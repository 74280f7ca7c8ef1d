"""The work of a step of mean size, from recorded steps of several sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gobrrr.timeline.align import match
from gobrrr.timeline.graph import StepOp
from gobrrr.work.estimate import Work

Float64 = NDArray[np.float64]
Recorded = tuple[Sequence[StepOp], Sequence[Work | None], float]


def mean_works(steps: Sequence[Recorded]) -> tuple[tuple[Work | None, ...], Float64, Float64]:
    """Work, calls and page faults of each op of the first step, as means over all of them.

    Args:
        steps: the ops of each recorded step, their works, and what the step counts in the mean.

    Returns:
        The work of one call of each op, over the steps that run it; how often a step runs it; the
        page faults of one call.
    """
    first = steps[0][0]
    names = [op.call.name for op in first]
    places = [match([op.call.name for op in ops], names) for ops, _, _ in steps]
    found: list[list[tuple[StepOp, Work | None, float]]] = [[] for _ in first]
    for (ops, works, share), at in zip(steps, places):
        for op, work, place in zip(ops, works, at.tolist()):
            if place >= 0:
                found[place].append((op, work, share))
    works = []
    calls, faults = np.ones(len(first)), np.zeros(len(first))
    for place, seen in enumerate(found):
        total = sum(share for _, _, share in seen)
        if total <= 0:
            # Beyond the sizes that were recorded a share may be negative: the step itself stands.
            works.append(steps[0][1][place])
            faults[place] = first[place].page_faults
            continue
        calls[place] = total
        faults[place] = max(0.0, sum(op.page_faults * share for op, _, share in seen) / total)
        works.append(_mean([(work, share / total) for _, work, share in seen]))
    return tuple(works), calls, faults


def _mean(seen: Sequence[tuple[Work | None, float]]) -> Work | None:
    first = seen[0][0]
    if first is None or any(work is None for work, _ in seen):
        return None

    def of(field: str) -> float | None:
        values = [getattr(work, field) for work, _ in seen]
        if None in values:
            return None
        return max(0.0, float(sum(v * share for v, (_, share) in zip(values, seen))))

    def whole(field: str) -> int | None:
        value = of(field)
        return None if value is None else round(value)

    return replace(
        first,
        matrix_flops=of("matrix_flops"),
        vector_flops=of("vector_flops"),
        special=of("special") or 0.0,
        bytes_read=whole("bytes_read"),
        bytes_written=whole("bytes_written"),
        unique_bytes=whole("unique_bytes"),
        fresh_bytes=whole("fresh_bytes") or 0,
    )
