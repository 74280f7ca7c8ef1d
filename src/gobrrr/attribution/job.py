"""The ranks of a live job side by side: who waits for whom, how long, and how busy each is.

A rank that is slow in its backward makes all backwards equally long, because every one of them ends
with the same all-reduce. What tells it is when each rank came to each collective, and how long each
was busy with anything but waiting.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.collectives import CollectiveFigures, Matched, match_collectives
from gobrrr.attribution.rank_record import RankRecord, exposure_of_record, timeline_of
from gobrrr.timeline.data import Timeline

Float64 = NDArray[np.float64]

# Below this share of a step a rank that is busy longer is no news.
MATTERS_FROM = 0.03
# How many standard deviations of chance a rank has to be busy longer more often than the others.
SURE_FROM = 3.0
# Fewer steps say nothing about chance.
_FEWEST_STEPS = 4


@dataclass(frozen=True)
class ExposedPart:
    """Communication that nothing hides, by who asked for it; ns per step, means over the ranks."""

    group: str | None
    phase: str
    module: str
    time_ns: float
    wait_ns: float


@dataclass(frozen=True)
class JobComparison:
    """All ranks that told; columns are in their order.

    Attributes:
        ranks: their numbers.
        figures: of the collectives.
        waited_share: of the time in which each waited for collectives, the part before the last
            rank had come; ``None`` where no collective could be compared.
        waits_for_ns: [i, j] how long rank i waited for rank j, per step.
        busy_ns: how long each was busy per step, the mean.
        ahead_ns: by how much each is busier than the others: the median of the differences between
            its steps and theirs (Hodges and Lehmann, "Estimates of location based on rank tests",
            1963), which a few steps that something else disturbed do not move.
        slowest: the place of the rank that the others wait for; ``None``: none stands out.
        exposed: the most first.
        longer: the parts of the slowest rank's step that are longer than the others', with by how
            much in ns, the one that explains most first (empty where steps were not told apart).
        runs_longer_ns: by how much longer than the others each runs on a processor in timed steps,
            the median of differences as in ``ahead_ns`` (empty: not known).
        pauses_ns: of each rank, the garbage collector's time per timed step: the mean, because it
            comes in few steps (empty: not known).
        clock_residual_ns: how far apart the ranks saw the same collectives end, the median;
            ``None`` if there are none that all have.
    """

    ranks: tuple[int, ...]
    figures: tuple[CollectiveFigures, ...]
    waited_share: tuple[float | None, ...]
    waits_for_ns: Float64
    busy_ns: tuple[float, ...]
    ahead_ns: tuple[float, ...]
    slowest: int | None
    exposed: tuple[ExposedPart, ...]
    clock_residual_ns: float | None
    longer: tuple[tuple[str, float], ...] = ()
    runs_longer_ns: tuple[float, ...] = ()
    pauses_ns: tuple[float, ...] = ()


def compare_records(records: Sequence[RankRecord], world_size: int) -> JobComparison:
    """Compares what ranks told of the same steps; ``records`` are sorted by rank."""
    ranks = tuple(record.rank for record in records)
    shifts = clock_shifts(records)
    timelines = [timeline_of(record, shift) for record, shift in zip(records, shifts)]
    figures, matched = match_collectives(
        timelines,
        [exposure_of_record(record) for record in records],
        ranks,
        len(records) == world_size,
        one_clock=True,
    )
    known = any(figure.matched for figure in figures)
    steps = min((len(record.steps) for record in records), default=0)
    waits = np.zeros((len(ranks), len(ranks)))
    shares: list[float | None] = []
    waited: list[list[float]] = []
    for i, (record, match, shift) in enumerate(zip(records, matched, shifts)):
        of_call, by_rank, total = _waited(record, match, shift, len(ranks))
        waits[i] = by_rank / max(1, len(record.steps))
        shares.append(sum(of_call) / total if known and total > 0 else (0.0 if known else None))
        waited.append(of_call)
    busy = np.array([record.own_ns[:steps] for record in records], np.float64)
    ahead = [_ahead(busy, i) for i in range(len(busy))]
    slowest = _slowest(ahead, steps, _step_ns(records), waits if known else None)
    longer: tuple[tuple[str, float], ...] = ()
    if slowest is not None:
        longer = _longer(records, slowest, steps, ahead[slowest][0])
    pauses = [record.paused_ns for record in records]
    return JobComparison(
        ranks=ranks,
        figures=figures,
        waited_share=tuple(shares),
        waits_for_ns=waits,
        busy_ns=tuple(
            float(np.mean(record.own_ns)) if record.own_ns else 0.0 for record in records
        ),
        ahead_ns=tuple(shift for shift, _ in ahead),
        slowest=slowest,
        longer=longer,
        runs_longer_ns=_runs_longer(records),
        pauses_ns=tuple(map(fmean, pauses)) if all(pauses) else (),
        exposed=_exposed(records, waited),
        clock_residual_ns=_residual(timelines),
    )


def _step_ns(records: Sequence[RankRecord]) -> float:
    lengths = [end - start for record in records for start, end in record.steps]
    return float(median(lengths)) if lengths else 0.0


def _ahead(busy: Float64, index: int) -> tuple[float, float]:
    """``ahead_of`` of one row of ``busy`` before all others."""
    return ahead_of(busy[index], np.delete(busy, index, axis=0).reshape(-1))


def ahead_of(own: Float64, others: Float64) -> tuple[float, float]:
    """By how much times of one rank exceed those of others, in their unit, and how sure that is.

    The median of the differences; and how many of all pairs (one of its, one of theirs) are longer,
    in standard deviations of that number were there no difference (Mann and Whitney, "On a test of
    whether one of two random variables is stochastically larger than the other", 1947).
    """
    if not len(own) or not len(others):
        return 0.0, 0.0
    apart = own[:, None] - others[None, :]
    more = float((apart > 0).sum() + 0.5 * (apart == 0).sum())
    pairs = len(own) * len(others)
    deviation = np.sqrt(pairs * (len(own) + len(others) + 1) / 12)
    return float(np.median(apart)), float((more - pairs / 2) / deviation)


def _slowest(
    ahead: Sequence[tuple[float, float]], steps: int, step_ns: float, waits: Float64 | None
) -> int | None:
    """The rank that is busier than the others by more than chance, and that they wait for."""
    if len(ahead) < 2 or steps < _FEWEST_STEPS or waits is None:
        return None
    first = max(range(len(ahead)), key=lambda i: ahead[i][0])
    shift, sure = ahead[first]
    if (
        shift <= MATTERS_FROM * step_ns
        or sure < _enough(steps, len(ahead))
        or waits[:, first].sum() <= 0
    ):
        return None
    return first


def _enough(steps: int, ranks: int) -> float:
    """From how many deviations on a rank is longer than the others by more than chance."""
    # Of four steps each all can be longer by no more than 2.3 deviations.
    return min(SURE_FROM, most_sure(steps, steps * (ranks - 1)))


def _longer(
    records: Sequence[RankRecord], slowest: int, steps: int, ahead_ns: float
) -> tuple[tuple[str, float], ...]:
    """Parts that are longer, by how much of ``ahead_ns`` they surely explain.

    What else runs on the machine makes any part of any step longer, now and then by far: a part is
    worth what it explains times how sure that is.
    """
    found: list[tuple[float, str, float]] = []
    for part in records[slowest].parts:
        times = [record.parts.get(part, [])[:steps] for record in records]
        if any(len(row) < steps for row in times):
            continue
        shift, sure = _ahead(np.array(times, np.float64), slowest)
        if shift > 0 and sure > 0:
            found.append((min(shift, ahead_ns) * sure, part, shift))
    return tuple((part, shift) for _, part, shift in sorted(found, reverse=True))


def _runs_longer(records: Sequence[RankRecord]) -> tuple[float, ...]:
    steps = min((len(record.ran_ns) for record in records), default=0)
    if len(records) < 2 or steps < _FEWEST_STEPS:
        return ()
    ran = np.array([record.ran_ns[:steps] for record in records], np.float64)
    return tuple(_ahead(ran, i)[0] for i in range(len(ran)))


def most_sure(own: int, others: int) -> float:
    """The deviations of a rank all of whose steps are longer than all of the others'."""
    pairs = own * others
    return float(pairs / 2 / np.sqrt(pairs * (own + others + 1) / 12)) - 1e-9


def _waited(
    record: RankRecord, match: Matched, shift: int, ranks: int
) -> tuple[list[float], Float64, float]:
    """Per call what of its exposed time was before the last had come; by that rank; all of it."""
    of_call: list[float] = []
    by_rank = np.zeros(ranks)
    total = 0.0
    for i, call in enumerate(record.calls):
        until = call.start_ns + match.wait_ns[i]
        length = float(sum(end - start for start, end in call.waits))
        part = float(sum(max(0.0, min(end, until) - start) for start, end in call.waits))
        total += length
        if match.last[i] < 0:
            of_call.append(0.0)
            continue
        by_rank[match.last[i]] += part
        of_call.append(part if match.complete[i] else 0.0)
    return of_call, by_rank, total


def _exposed(
    records: Sequence[RankRecord], waited: Sequence[Sequence[float]]
) -> tuple[ExposedPart, ...]:
    times: dict[tuple[str | None, str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for record, parts in zip(records, waited):
        for call, part in zip(record.calls, parts):
            raw = sum(end - start for start, end in call.waits)
            key = (record.collectives[call.which][4], call.phase, call.module)
            times[key][0] += call.exposed_ns
            times[key][1] += call.exposed_ns * part / raw if raw else 0.0
    count = max(1, len(records))
    found = [
        ExposedPart(group, phase, module, time / count, wait / count)
        for (group, phase, module), (time, wait) in times.items()
        if time > 0
    ]
    return tuple(sorted(found, key=lambda part: -part.time_ns))


# Clocks


def clock_shifts(records: Sequence[RankRecord]) -> list[int]:
    """How far the clock of each is ahead of the first one's, in ns.

    Processes of one host share a clock. Of others the ends of the same collectives tell: they end
    together on all ranks, but for the last message.
    """
    shifts = [0]
    first = timeline_of(records[0])
    for record in records[1:]:
        if record.host == records[0].host:
            shifts.append(0)
            continue
        apart = _apart(first, timeline_of(record))
        shifts.append(round(median(apart)) if apart else 0)
    return shifts


def _apart(one: Timeline, other: Timeline) -> list[int]:
    """By how much the ends of the same collectives differ, in order of time."""
    ends = [_ends(timeline) for timeline in (one, other)]
    return [
        later - earlier
        for key in ends[0].keys() & ends[1].keys()
        if len(ends[0][key]) == len(ends[1][key])
        for earlier, later in zip(ends[0][key], ends[1][key])
    ]


def _ends(timeline: Timeline) -> dict[tuple[str, int, str | None], list[int]]:
    found: dict[tuple[str, int, str | None], list[int]] = defaultdict(list)
    kernels = timeline.kernels
    for end, which, size in zip(
        kernels.end_ns.tolist(), kernels.collective.tolist(), kernels.bytes_moved.tolist()
    ):
        record = timeline.collectives[which]
        found[record.name, size, record.group].append(end)
    return found


def _residual(timelines: Sequence[Timeline]) -> float | None:
    apart = [abs(ns) for other in timelines[1:] for ns in _apart(timelines[0], other)]
    return float(median(apart)) if apart else None
