"""Traces of several ranks -> one diagnosis: of the rank that sets the pace, beside the others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gobrrr.attribution.collectives import Matched
from gobrrr.attribution.device.attribute import DeviceAttribution, attribute_device
from gobrrr.attribution.device.attributed import attributed_device
from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.assemble import assemble
from gobrrr.diagnosis.lanes import lanes_of
from gobrrr.diagnosis.records import ALIKE, device_time_record, seconds, shown_rank_notice
from gobrrr.diagnosis.schema import Diagnosis, JobLanes, RankRow
from gobrrr.diagnosis.verdict import split_of
from gobrrr.ranks.job_clocks import clocks_of, residual_ns
from gobrrr.ranks.job_trace import write_trace_of_job
from gobrrr.ranks.rank_record import record_of_device, timeline_of
from gobrrr.ranks.rank_spans import spans_of_device
from gobrrr.ranks.ranks import RankComparison, compare_ranks
from gobrrr.recordings.ranks import missing_ranks
from gobrrr.timeline.data import KernelKind, Timeline
from gobrrr.work import work_of


def diagnose_ranks(
    timelines: Sequence[Timeline],
    ceilings: Sequence[Ceilings | None],
    environment: dict[str, Any],
    perfetto: str | os.PathLike[str] | None = None,
) -> Diagnosis:
    """Diagnose several ranks; ``timelines`` are sorted by rank, ``ceilings`` those of each.

    Split, ops and everything else that is of one rank are of the one that the others wait for,
    else of the one with the longest step. ``ranks`` and ``collectives`` are of all.

    ``perfetto``: also write the first steps of all ranks there, as one trace, on one clock where
    collectives tie their clocks together.

    Raises ValueError if a timeline has no device work, InputError if the trace cannot be written.
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
    diagnosis.lanes = _lanes(timelines, found, result, perfetto)
    diagnosis.verdict = " ".join(text for text in (diagnosis.verdict, pace_of(result)) if text)
    return diagnosis


def _lanes(
    timelines: Sequence[Timeline],
    found: Sequence[DeviceAttribution],
    result: RankComparison,
    perfetto: str | os.PathLike[str] | None,
) -> JobLanes | None:
    """One step of all ranks on one clock; ``perfetto`` as in ``diagnose_ranks``."""
    # Each on a clock of its own: traces do not tell which ranks were on one host.
    records = [
        record_of_device(timeline, own, rank.rank, f"rank {rank.rank}")
        for timeline, own, rank in zip(timelines, found, result.ranks)
    ]
    for record, timeline in zip(records, timelines):
        record.step_names = list(timeline.step_names)
    clocks = clocks_of(records)
    timed = [timeline_of(record, clock.ahead_ns) for record, clock in zip(records, clocks)]
    if perfetto is not None:
        for record, timeline in zip(records, timelines):
            record.spans = spans_of_device(timeline)
        write_trace_of_job(perfetto, records)
    rows = [np.flatnonzero(t.kernels.kind == KernelKind.COLLECTIVE) for t in timelines]
    return lanes_of(
        records,
        [Matched(m.wait_ns[row], m.last[row], m.complete[row])
         for m, row in zip(result.matched, rows)],
        clocks,
        residual_ns(timed, clocks),
        [timeline.step_names for timeline in timelines],
    )  # fmt: skip


def rank_rows(result: RankComparison, found: Sequence[DeviceAttribution]) -> list[RankRow]:
    """One row for each rank, in their order."""
    rows = []
    for rank, own in zip(result.ranks, found):
        leaves = {name: ns * 1e-9 for name, ns in rank.attribution.leaves_ns.items()}
        rows.append(
            RankRow(
                rank=rank.rank,
                step_s=rank.attribution.step_ns * 1e-9,
                split=split_of(leaves),
                leaves=leaves,
                device_time=device_time_record(own.device_time),
                wait_s=seconds(rank.wait_ns),
                why=rank.why or None,
            )
        )
    return rows


def pace_of(result: RankComparison) -> str:
    """The sentence of the verdict about the rank that sets the pace; empty if none does."""
    if result.slowest is None:
        return ""
    why = next(rank.why for rank in result.ranks if rank.rank == result.slowest)
    who = "Among the recorded ranks, the others" if result.missing else "The other ranks"
    return f"{who} wait for rank {result.slowest}, which {why}."


def rank_notices(timelines: Sequence[Timeline], result: RankComparison, shown: int) -> list[str]:
    """What a reader of the diagnosis of one rank has to know of the others."""
    rank = result.ranks[shown].rank
    lengths = [each.attribution.step_ns for each in result.ranks]
    which = "whose step is longest"
    if result.slowest is not None:
        which = "for which the others wait"
    elif max(lengths) < (1 + ALIKE) * min(lengths):
        which = "whose step takes as long as the others'"
    notices = [shown_rank_notice(rank, which)]
    if all(timeline.world_size is None for timeline in timelines):
        notices.append(
            f"The traces do not say how many ranks their run has: the {len(timelines)} given are "
            "assumed to be all of them."
        )
    devices = sorted({timeline.device.name for timeline in timelines if timeline.device.name})
    if len(devices) > 1:
        notices.append(f"The ranks ran on different devices: {', '.join(devices)}.")
    return [*notices, *result.notices]
