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
from gobrrr.attribution.lane import LEAF_OF_OWNER, LOADING, PYTHON
from gobrrr.ranks.job_clocks import Clock, clocks_of, residual_ns
from gobrrr.ranks.paired import FEWEST_PAIRS, repeated, sure_of_pairs
from gobrrr.ranks.rank_record import RankRecord, exposure_of_record, timeline_of

Float64 = NDArray[np.float64]

# Below this share of a step a rank that is busy longer is no news.
MATTERS_FROM = 0.03
# How many standard deviations of chance a rank has to be busy longer more often than the others.
SURE_FROM = 3.0
# Fewer steps say nothing about chance.
_FEWEST_STEPS = 4
# What a thread may sleep in, so that no processor's speed makes it longer.
_MAY_SLEEP = (LEAF_OF_OWNER[PYTHON], LEAF_OF_OWNER[LOADING])
# Two threads that share a core make each other half as fast at most: what takes more times as long
# is no slower processor.
_NO_PROCESSOR_FROM = 2.0


@dataclass(frozen=True)
class ExposedPart:
    """Communication that nothing hides, by who asked for it; ns per step, means over the ranks.

    ``wait_ns``: ``None`` where the clocks of the ranks cannot be compared.
    """

    group: str | None
    phase: str
    module: str
    time_ns: float
    wait_ns: float | None


@dataclass(frozen=True)
class JobComparison:
    """All ranks that told; columns are in their order.

    Attributes:
        ranks: their numbers.
        figures: of the collectives.
        waited_share: of the time in which each waited for collectives, the part before the last
            rank had come; ``None`` where no collective could be compared, of the whole job or, by
            its clock, of this rank.
        waits_for_ns: [i, j] how long rank i waited for rank j, per step.
        busy_ns: how long each was busy per step, the mean.
        ahead_ns: by how much each is busier than the others: the median of the differences between
            its steps and theirs (Hodges and Lehmann, "Estimates of location based on rank tests",
            1963), which a few steps that something else disturbed do not move.
        slowest: the place of the rank that the others wait for; ``None``: none stands out.
        exposed: the most first.
        longer: the parts of the slowest rank's step that are longer than the others', with by how
            much in ns, the one that explains most first (empty where steps were not told apart).
        idle_in_it: whether it is sure, of timed steps, that the slowest's thread runs longer by
            less than half of the first of ``longer``: the most of that is no work.
        runs_longer_ns: by how much longer than the others each runs on a processor in timed steps,
            the median of differences as in ``ahead_ns`` (empty: not known).
        uneven_ns: by how much longer the rank with the most to do runs on a processor in a timed
            step than the ranks do in the mean, beyond what it does in most steps: the mean over
            steps, whichever rank it is (``None``: not known).
        queued_ns: how long each waits for a processor in a profiled step, the median (empty: not
            known).
        pauses_ns: of each rank, the garbage collector's time per timed step: the mean, because it
            comes in few steps (empty: not known).
        clock_residual_ns: how far apart the ranks saw the same collectives end, the median;
            ``None`` if no two share any.
        clocks: of each rank; what was compared is of ranks whose clocks are tied together.
        matched: what was found of the calls of each, in their order.
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
    clocks: tuple[Clock, ...]
    longer: tuple[tuple[str, float], ...] = ()
    idle_in_it: bool = False
    runs_longer_ns: tuple[float, ...] = ()
    uneven_ns: float | None = None
    queued_ns: tuple[float, ...] = ()
    pauses_ns: tuple[float, ...] = ()
    matched: tuple[Matched, ...] = ()


def compare_records(records: Sequence[RankRecord], world_size: int) -> JobComparison:
    """Compares what ranks told of their steps; ``records`` are sorted by rank.

    Of ranks that did not all take the same steps no collectives are compared: the first step of one
    is not that of another, and whole durations would become waiting.
    """
    ranks = tuple(record.rank for record in records)
    same_steps = not any(record.alone for record in records)
    clocks = clocks_of(records)
    timelines = [timeline_of(record, clock.ahead_ns) for record, clock in zip(records, clocks)]
    figures, matched = match_collectives(
        timelines,
        [exposure_of_record(record) for record in records],
        ranks,
        len(records) == world_size,
        clocks=[clock.of for clock in clocks] if same_steps else range(len(records)),
    )
    known = any(figure.matched for figure in figures)
    one_clock = len({clock.of for clock in clocks}) == 1
    steps = min((len(record.steps) for record in records), default=0)
    waits = np.zeros((len(ranks), len(ranks)))
    shares: list[float | None] = []
    waited: list[list[float | None]] = []
    for i, (record, match) in enumerate(zip(records, matched)):
        of_call, by_rank, total = _waited(record, match, one_clock, len(ranks))
        waits[i] = by_rank / max(1, len(record.steps))
        told = [part for part in of_call if part is not None]
        if known and (told or not of_call):
            shares.append(sum(told) / total if total > 0 else 0.0)
        else:
            shares.append(None)
        waited.append(of_call)
    busy = np.array([record.own_ns[:steps] for record in records], np.float64)
    ahead = [_ahead(busy, i) for i in range(len(busy))]
    runs = _runs_longer(records)
    slowest = None
    if known and len(ranks) > 1 and steps >= _FEWEST_STEPS:
        least_ns = MATTERS_FROM * _step_ns(records)
        for i in sorted(range(len(ranks)), key=lambda i: -ahead[i][0]):
            # Nobody waits for a rank that never comes last.
            if waits[:, i].sum() > 0 and _stands_out(i, records, ahead, runs, steps, least_ns):
                slowest = i
                break
    longer: tuple[tuple[str, float], ...] = ()
    idle_in_it = False
    if slowest is not None:
        whole_ns = max(shift for shift, _ in (ahead[slowest], *runs[slowest : slowest + 1]))
        longer = _longer(records, slowest, steps, whole_ns)
        idle_in_it = bool(longer) and _is_idle_for(
            min(longer[0][1], whole_ns) / 2, _ran_in_pairs(records, slowest)
        )
    pauses = [record.paused_ns for record in records]
    queued = [record.queued_ns for record in records]
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
        idle_in_it=idle_in_it,
        runs_longer_ns=tuple(shift for shift, _ in runs),
        uneven_ns=_uneven_ns(records),
        queued_ns=tuple(map(median, queued)) if all(queued) else (),
        pauses_ns=tuple(map(fmean, pauses)) if all(pauses) else (),
        exposed=_exposed(records, waited),
        clock_residual_ns=residual_ns(timelines, clocks) if same_steps else None,
        clocks=clocks,
        matched=matched,
    )


def _step_ns(records: Sequence[RankRecord]) -> float:
    lengths = [end - start for record in records for start, end in record.steps]
    return float(median(lengths)) if lengths else 0.0


def _ahead(busy: Float64, index: int) -> tuple[float, float]:
    """By how much one row of ``busy`` is before all others, as ``ahead_of``, and how sure that is.

    By pairs of the same step where there are enough: each step beside the others' median in it.
    """
    own, others = busy[index], np.delete(busy, index, axis=0)
    shift, sure = ahead_of(own, others.reshape(-1))
    if len(others) and len(own) >= FEWEST_PAIRS:
        sure = sure_of_pairs(own - np.median(others, axis=0))
    return shift, sure


def _ahead_in_part(times: Float64, index: int) -> tuple[float, float]:
    """``_ahead`` of a part of the step.

    A part holds its thread's waits for a processor: in few steps, of one rank at a time, and only
    ever longer, by far. Order tells more of that than means do, and pairs no more than sets.
    """
    own, others = times[index], np.delete(times, index, axis=0)
    shift, sure = ahead_of(own, others.reshape(-1))
    if len(others) and len(own) >= FEWEST_PAIRS:
        sure /= np.sqrt(repeated(own - np.median(others, axis=0)))
    return shift, float(sure)


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


def _stands_out(
    rank: int,
    records: Sequence[RankRecord],
    ahead: Sequence[tuple[float, float]],
    runs: Sequence[tuple[float, float]],
    steps: int,
    least_ns: float,
) -> bool:
    """Whether a rank (its place) is busier than the others by more than chance, and it matters.

    ``runs``: how much longer each runs in timed steps, and how sure that is (empty: not known).
    """
    shift, sure = ahead[rank]
    busier, runs_longer = shift > least_ns, bool(runs) and runs[rank][0] > least_ns
    if busier and sure >= _enough(steps, len(ahead)):
        # A thread that computes alone runs all of what it takes longer, in timed steps too. If it
        # does not there, its processor was slower while it was profiled, or the profiler was.
        most = _longer(records, rank, steps, shift)[:1]
        computes = records[rank].threads == 1 and bool(most) and most[0][0] not in _MAY_SLEEP
        if runs_longer or not runs or not computes:
            return True
    # Few steps are profiled, and of seven each nearly all have to be longer. The timed ones are
    # others, and more: where they say the same as clearly, both together count (Stouffer et al.,
    # "The American Soldier", 1949, volume 1, page 45).
    if busier and runs_longer and (sure + runs[rank][1]) / np.sqrt(2) >= SURE_FROM:
        return True
    # A part may be surely longer where the kernels beside it vary by more than that. The speed of
    # a processor makes no difference of it if the timed steps say the same, or in a sleep.
    if steps < FEWEST_PAIRS:
        return False
    for part in records[rank].parts:
        times = _times_of(part, records, steps)
        if times is None:
            continue
        more, sure = _ahead_in_part(times, rank)
        if more <= least_ns or sure < SURE_FROM:
            continue
        others = float(np.median(np.delete(times, rank, axis=0)))
        slept = part in _MAY_SLEEP and more >= (_NO_PROCESSOR_FROM - 1) * others
        if runs_longer or (slept and busier):
            return True
    return False


def _enough(steps: int, ranks: int) -> float:
    """From how many deviations on a rank is longer than the others by more than chance."""
    if steps >= FEWEST_PAIRS:
        return SURE_FROM
    # Of four steps each all can be longer by no more than 2.3 deviations.
    return min(SURE_FROM, most_sure(steps, steps * (ranks - 1)))


def _times_of(part: str, records: Sequence[RankRecord], steps: int) -> Float64 | None:
    """How long a part takes each rank in each step; ``None``: not told of all."""
    times = [record.parts.get(part, [])[:steps] for record in records]
    return None if any(len(row) < steps for row in times) else np.array(times, np.float64)


def _longer(
    records: Sequence[RankRecord], slowest: int, steps: int, ahead_ns: float
) -> tuple[tuple[str, float], ...]:
    """Parts that are longer, by how much of ``ahead_ns`` they surely explain.

    What else runs on the machine makes any part of any step longer, now and then by far: a part is
    worth what it explains times how sure that is.
    """
    found: list[tuple[float, str, float]] = []
    for part in records[slowest].parts:
        times = _times_of(part, records, steps)
        if times is None:
            continue
        shift, sure = _ahead_in_part(times, slowest)
        if shift > 0 and sure > 0:
            found.append((min(shift, ahead_ns) * sure, part, shift))
    return tuple((part, shift) for _, part, shift in sorted(found, reverse=True))


def _runs_longer(records: Sequence[RankRecord]) -> tuple[tuple[float, float], ...]:
    """``_ahead`` of each rank's processor time; empty if too few steps were timed."""
    steps = min((len(record.ran_ns) for record in records), default=0)
    if len(records) < 2 or steps < _FEWEST_STEPS:
        return ()
    ran = np.array([record.ran_ns[:steps] for record in records], np.float64)
    return tuple(_ahead(ran, i) for i in range(len(ran)))


def _uneven_ns(records: Sequence[RankRecord]) -> float | None:
    """``JobComparison.uneven_ns``."""
    steps = min((len(record.ran_ns) for record in records), default=0)
    if len(records) < 2 or steps < _FEWEST_STEPS:
        return None
    ran = np.array([record.ran_ns[:steps] for record in records], np.float64)
    beyond = ran - ran.mean(axis=0)
    beyond -= np.median(beyond, axis=1, keepdims=True)
    return float(np.mean(beyond.max(axis=0)))


def _ran_in_pairs(records: Sequence[RankRecord], rank: int) -> Float64:
    """By how much longer one ran than the others' median, in each timed step."""
    steps = min(len(record.ran_ns) for record in records)
    ran = np.array([record.ran_ns[:steps] for record in records], np.float64)
    return np.asarray(ran[rank] - np.median(np.delete(ran, rank, axis=0), axis=0), np.float64)


def _is_idle_for(least_ns: float, runs_longer: Float64) -> bool:
    """Whether steps surely run longer by less than this."""
    enough = len(runs_longer) >= FEWEST_PAIRS
    return enough and sure_of_pairs(runs_longer - least_ns) <= -SURE_FROM


def most_sure(own: int, others: int) -> float:
    """The deviations of a rank all of whose steps are longer than all of the others'."""
    pairs = own * others
    return float(pairs / 2 / np.sqrt(pairs * (own + others + 1) / 12)) - 1e-9


def _waited(
    record: RankRecord, match: Matched, one_clock: bool, ranks: int
) -> tuple[list[float | None], Float64, float]:
    """Per call what of its exposed time was before the last had come; by that rank; all of it.

    ``None`` of a call that is not compared, where that may be for want of ``one_clock``.
    """
    of_call: list[float | None] = []
    by_rank = np.zeros(ranks)
    total = 0.0
    for i, call in enumerate(record.calls):
        until = call.start_ns + match.wait_ns[i]
        length = float(sum(end - start for start, end in call.waits))
        part = float(sum(max(0.0, min(end, until) - start) for start, end in call.waits))
        total += length
        if match.last[i] < 0:
            of_call.append(0.0 if one_clock else None)
            continue
        by_rank[match.last[i]] += part
        of_call.append(part if match.complete[i] else 0.0)
    return of_call, by_rank, total


def _exposed(
    records: Sequence[RankRecord], waited: Sequence[Sequence[float | None]]
) -> tuple[ExposedPart, ...]:
    times: dict[tuple[str | None, str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    compared: set[tuple[str | None, str, str]] = set()
    for record, parts in zip(records, waited):
        for call, part in zip(record.calls, parts):
            raw = sum(end - start for start, end in call.waits)
            key = (record.collectives[call.which][4], call.phase, call.module)
            times[key][0] += call.exposed_ns
            if part is not None:
                compared.add(key)
                times[key][1] += call.exposed_ns * part / raw if raw else 0.0
    count = max(1, len(records))
    found = [
        ExposedPart(*key, time / count, wait / count if key in compared else None)
        for key, (time, wait) in times.items()
        if time > 0
    ]
    return tuple(sorted(found, key=lambda part: -part.time_ns))
