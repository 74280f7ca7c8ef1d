"""Traces of several ranks -> one diagnosis: of the rank that sets the pace, beside the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gobrrr.attribution.device import attribute_device
from gobrrr.attribution.device_attributed import attributed_device
from gobrrr.attribution.ranks import compare_ranks
from gobrrr.capture.trace_ranks import missing_ranks
from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.assemble import assemble
from gobrrr.diagnosis.ranks import pace_of, rank_notices, rank_rows
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.timeline.data import Timeline
from gobrrr.work import work_of


def diagnose_ranks(
    timelines: Sequence[Timeline],
    ceilings: Sequence[Ceilings | None],
    environment: dict[str, Any],
) -> Diagnosis:
    """Diagnose several ranks; ``timelines`` are sorted by rank, ``ceilings`` those of each.

    Split, ops and everything else that is of one rank are of the one that the others wait for,
    else of the one with the longest step. ``ranks`` and ``collectives`` are of all.

    Raises ValueError if a timeline has no device work.
    """
    found = [attribute_device(t, c, work_of) for t, c in zip(timelines, ceilings)]
    result = compare_ranks(timelines, found, missing_ranks(timelines))
    numbers = [rank.rank for rank in result.ranks]
    if result.slowest is not None:
        shown = numbers.index(result.slowest)
    else:
        shown = int(np.argmax([rank.attribution.step_ns for rank in result.ranks]))
    timeline = timelines[shown]
    source: dict[str, Any] = {
        "kind": "trace",
        "name": timeline.source,
        "rank": timeline.rank,
        "world_size": timeline.world_size,
        "names": [t.source for t in timelines],
    }
    shown_rank = replace(found[shown], attribution=result.ranks[shown].attribution)
    step = attributed_device(timeline, shown_rank, ceilings[shown])
    step = replace(
        step,
        collectives=result.collectives,
        notices=(*rank_notices(timelines, result, shown), *step.notices),
    )
    diagnosis = assemble(step, source=source, environment=environment)
    diagnosis.ranks = rank_rows(result, found)
    diagnosis.verdict = " ".join(text for text in (diagnosis.verdict, pace_of(result)) if text)
    return diagnosis
