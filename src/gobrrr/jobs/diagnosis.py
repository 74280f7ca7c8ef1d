"""The diagnoses of a job's ranks -> one: of the rank that sets the pace, beside the others.

What a rank takes longer for is what its leaves say beside those of the others, and the part of the
step in which: waiting hides it in step times, not in leaves.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean, median
from typing import TypeVar

from gobrrr.attribution.leaves import LEAVES
from gobrrr.diagnosis.known_causes import name_ranks_of_causes
from gobrrr.diagnosis.records import ALIKE, collective_rows, seconds
from gobrrr.diagnosis.schema import Diagnosis, ExposedRow, GroupRow, JobRecord, RankRow
from gobrrr.diagnosis.verdict import split_of, verdict_of
from gobrrr.jobs.notices import different_work, name_late_start, notices_of_job
from gobrrr.ranks.job import MATTERS_FROM, JobComparison
from gobrrr.ranks.rank_record import KERNELS
from gobrrr.timeline.data import PHASE_NAMES
from gobrrr.timeline.quantities import time_text

NETWORK, WAIT = "memory.network", "memory.network_wait"
COLLECTION = "overhead.garbage_collection"
# From how many times the largest part on, or less by as much, what a job loses is told beside it.
MORE_FROM = 1.05
PYTHON, ASLEEP = "overhead.python", "overhead.asleep"
LOADING = "overhead.data_loading"
# What the median processor time of the thread does not tell: sleep, and pauses of few steps.
_NOT_RUN = (ASLEEP, COLLECTION)

_Part = tuple[str, str | None]
_Key = TypeVar("_Key", bound=Hashable)


def job_diagnosis(
    found: Mapping[int, Diagnosis],
    compared: JobComparison,
    *,
    world_size: int,
    hosts: int,
    missing: Mapping[int, str],
    joined_s: Mapping[int, float],
    alone: Mapping[int, str] | None = None,
    ended: Mapping[int, str] | None = None,
    communication: Mapping[int, Mapping[str, float]] | None = None,
) -> Diagnosis:
    """One diagnosis of the job.

    Args:
        found: of each rank that has one; at least one.
        compared: the ranks' collectives side by side; its ranks are those of ``found``.
        world_size: how many ranks the job has.
        hosts: on how many machines.
        missing: why ranks are not in ``found``.
        joined_s: when each came to where the ranks first meet, by its clock (``compared.clocks``).
        alone: why ranks did not measure the others' steps. If there are any, nobody is named whom
            the others wait for.
        ended: how scripts failed before all was measured.
        communication: what of it the rows of each hold (``RankRecord.communication``).
    """
    ranks = list(compared.ranks)
    alone = alone or {}
    slowest = None if alone else _slowest(found, compared)
    shown = slowest if slowest is not None else ranks[_longest(compared)]
    leaves = {
        rank: _with_wait(found[rank].leaves, share)
        for rank, share in zip(ranks, compared.waited_share)
    }
    diagnosis = found[shown]
    diagnosis.leaves = leaves[shown]
    diagnosis.split = split_of(diagnosis.leaves)
    diagnosis.collectives = collective_rows(compared.figures)
    diagnosis.exposed = [
        ExposedRow(
            group=part.group,
            phase=part.phase,
            module=part.module,
            time_s=part.time_ns * 1e-9,
            wait_s=seconds(part.wait_ns) if any(f.matched for f in compared.figures) else None,
        )
        for part in compared.exposed
    ]
    diagnosis.source |= {"rank": shown, "world_size": world_size}
    job = JobRecord(
        world_size=world_size,
        hosts=hosts,
        slowest=slowest,
        mean=split_of({leaf: fmean(each[leaf] for each in leaves.values()) for leaf in LEAVES}),
        longest=split_of(leaves[ranks[_longest(compared)]]),
        longest_rank=None if _alike(compared) else ranks[_longest(compared)],
        uneven_s=seconds(compared.uneven_ns),
        clock_residual_s=seconds(compared.clock_residual_ns),
        missing={str(rank): why for rank, why in sorted(missing.items())},
        ended={str(rank): how for rank, how in sorted((ended or {}).items())},
        same_steps=not alone or len(ranks) < 2,
        clocks_apart=[
            rank for rank, clock in zip(ranks, compared.clocks) if clock.of != compared.clocks[0].of
        ],
    )
    if slowest is not None:
        _name_cause(job, slowest, found, compared, communication or {})
    name_late_start(job, joined_s, compared)
    diagnosis.job = job
    diagnosis.ranks = [
        RankRow(
            rank=rank,
            step_s=sum(leaves[rank].values()),
            split=split_of(leaves[rank]),
            leaves=leaves[rank],
            device_time=found[rank].device_time,
            wait_s=leaves[rank][WAIT] if compared.waited_share[i] is not None else None,
            why=_why(i, compared, job, len(ranks)),
        )
        for i, rank in enumerate(ranks)
    ]
    name_ranks_of_causes(found, shown)
    diagnosis.verdict = " ".join(filter(None, (verdict_of(diagnosis), job.sentence)))
    diagnosis.notices = [
        *notices_of_job(job, shown, alone), *different_work(found), *diagnosis.notices
    ]  # fmt: skip
    diagnosis.check()
    return diagnosis


def _longest(compared: JobComparison) -> int:
    return max(range(len(compared.ranks)), key=lambda i: compared.busy_ns[i])


def _alike(compared: JobComparison) -> bool:
    """Whether no rank is busy longer than another, but for what alike ones differ by."""
    return max(compared.busy_ns) < (1 + ALIKE) * min(compared.busy_ns)


def _with_wait(leaves: Mapping[str, float], share: float | None) -> dict[str, float]:
    """The leaves with waiting for the last rank apart from transfer."""
    network = leaves[NETWORK] + leaves[WAIT]
    wait = network * min(1.0, share or 0.0)
    return {**leaves, NETWORK: network - wait, WAIT: wait}


def _slowest(found: Mapping[int, Diagnosis], compared: JobComparison) -> int | None:
    if compared.slowest is not None:
        return compared.ranks[compared.slowest]
    # A pause of the collector now and then is in few steps, which a median does not see.
    if len(found) > 1:
        paused_s = _paused_s(found, compared)
        most = max(paused_s, key=lambda rank: paused_s[rank])
        if paused_s[most] > MATTERS_FROM * found[most].accounted_s:
            return most
    return None


def _paused_s(found: Mapping[int, Diagnosis], compared: JobComparison) -> dict[int, float]:
    """How much longer the garbage collector stops each rank than the others, per step.

    By the mean of the steps where it is known: pauses are in few of them, and the leaves are those
    of the median step.
    """
    paused_s = {rank: each.leaves[COLLECTION] for rank, each in found.items()}
    if compared.pauses_ns:
        paused_s = {rank: ns * 1e-9 for rank, ns in zip(compared.ranks, compared.pauses_ns)}
    return {
        rank: own_s - median(other_s for other, other_s in paused_s.items() if other != rank)
        for rank, own_s in paused_s.items()
    }


# Which part of the step is longer


def _parts(diagnosis: Diagnosis, communication: Mapping[str, float]) -> dict[_Part, float]:
    """The step without its communication: leaves of overhead, and kernels by phase; seconds."""
    parts: dict[_Part, float] = {
        (leaf, None): time_s
        for leaf, time_s in diagnosis.leaves.items()
        if leaf.startswith("overhead.")
    }
    parts["memory.copies", None] = diagnosis.leaves["memory.copies"]
    for row in diagnosis.phases:
        if row.name in PHASE_NAMES.values():
            of_phase = sum(
                ns for place, ns in communication.items() if place.startswith(f"{row.name}|")
            )
            parts[KERNELS, row.name] = _kernels_s(row, of_phase)
    return parts


def _kernels_s(row: GroupRow, communication_ns: float) -> float:
    """What its kernels take, of which so much is communication."""
    return max(0.0, row.compute_s + row.memory_s + row.unmodelled_s - communication_ns * 1e-9)


def _name_cause(
    job: JobRecord,
    slowest: int,
    found: Mapping[int, Diagnosis],
    compared: JobComparison,
    communication: Mapping[int, Mapping[str, float]],
) -> None:
    own, beside = found[slowest], [rank for rank in found if rank != slowest]
    others = [found[rank] for rank in beside]
    ahead_s = compared.ahead_ns[compared.ranks.index(slowest)] * 1e-9
    held = {rank: communication.get(rank, {}) for rank in found}
    parts = {rank: _parts(each, held[rank]) for rank, each in found.items()}
    excess = _excess(parts[slowest], [parts[rank] for rank in beside])
    (cause, phase), most_s = max(excess.items(), key=lambda item: item[1])
    if compared.longer:
        # Step by step, which is surer than figures that stand for all steps.
        part, longer_ns = compared.longer[0]
        (cause, phase), most_s = _part_of(part), longer_ns * 1e-9
    paused_s = _paused_s(found, compared)[slowest]
    # Where the profiled steps name nobody, the pauses alone have named this rank.
    if paused_s > most_s or compared.slowest is None:
        cause, phase, most_s = COLLECTION, None, paused_s
    elif cause == COLLECTION and compared.pauses_ns and paused_s > 0:
        # In few steps, of which some were profiled, by the wall.
        most_s = paused_s
    if cause == PYTHON and _is_slept_in(excess, compared):
        cause = ASLEEP
    lost_s = _lost_s(cause, most_s, slowest, compared)
    job.cause, job.excess_s = cause, most_s
    job.lost_s, job.busier_s = lost_s, max(ahead_s, 0.0)
    if cause == KERNELS:
        job.phase = phase
        modules = {rank: _modules(each, phase, held[rank]) for rank, each in found.items()}
        job.place = _place(modules[slowest], [modules[rank] for rank in beside])
    else:
        job.phase = _phase_of_overhead(own, others) if cause in _OF_OPS else None
        label = cause.removeprefix("overhead.")
        job.place = _place(_lines(own, label), [_lines(each, label) for each in others])
        if job.place is None and cause == ASLEEP:
            # Samples saw where the thread was, and not that it slept.
            job.place = _place(_lines(own, "python"), [_lines(each, "python") for each in others])
    job.sentence = _sentence(job)


def _is_slept_in(excess: Mapping[_Part, float], compared: JobComparison) -> bool:
    """Whether Python that takes a rank longer is sleep.

    It is if in the timed steps the thread surely runs longer by less than half of it, or if samples
    saw it sleep for the most of it: of a thread that often waits for a processor they see too
    little.
    """
    asleep_s = excess.get((ASLEEP, None), 0.0)
    return compared.idle_in_it or asleep_s > excess.get((PYTHON, None), 0.0)


def _lost_s(cause: str, part_s: float, slowest: int, compared: JobComparison) -> float:
    """What the job loses per step to a rank on which a part takes ``part_s`` longer.

    That without the waits for a processor in it, or by how much longer its thread runs in timed
    steps, if that is more: the part leaves out the dispatch and the Python of further ops. While a
    thread waits for a processor another rank of its host has it, whose work has to be done anyway:
    the job does not lose that. Data may be loaded in the thread or waited for, and are not more
    than their part. A part that is slept in, and pauses, of which a median sees none, are lost as
    they are; so is all on a device, whose host runs ahead.
    """
    if cause in _NOT_RUN or not compared.runs_longer_ns:
        return part_s
    place = compared.ranks.index(slowest)
    ran_s = compared.runs_longer_ns[place] * 1e-9
    own_s = _without_queue(part_s, place, compared)
    return max(own_s, min(ran_s, part_s) if cause == LOADING else ran_s)


def _without_queue(part_s: float, place: int, compared: JobComparison) -> float:
    """The part without what its thread waits for a processor in it.

    How much of a step's wait is in which part is not measured. By how much longer the whole step
    is without its waits tells it, less precisely: it counts as far as the wait allows.
    """
    if not compared.queued_ns:
        return part_s
    least_s = part_s - compared.queued_ns[place] * 1e-9
    return min(part_s, max(least_s, compared.ahead_ns[place] * 1e-9))


def _part_of(name: str) -> _Part:
    """What stands in ``RankRecord.parts`` under a name."""
    leaf, _, phase = name.partition("|")
    return leaf, phase or None


# Overhead that is spent on the way to ops, and so in a phase.
_OF_OPS = (
    "overhead.python",
    "overhead.asleep",
    "overhead.dispatch",
    "overhead.launch",
    "overhead.allocation",
)


def _excess(own: Mapping[_Key, float], others: Sequence[Mapping[_Key, float]]) -> dict[_Key, float]:
    """By how much each time is longer than at the others, the median of whom is meant."""
    return {
        key: time_s - median(other.get(key, 0.0) for other in others) for key, time_s in own.items()
    }


def _phase_of_overhead(own: Diagnosis, others: Sequence[Diagnosis]) -> str | None:
    def overhead(diagnosis: Diagnosis) -> dict[str, float]:
        return {row.name: row.overhead_s for row in diagnosis.phases}

    return _place(overhead(own), [overhead(each) for each in others])


def _modules(
    diagnosis: Diagnosis, phase: str | None, communication: Mapping[str, float]
) -> dict[str, float]:
    return {
        row.name: _kernels_s(row, communication.get(f"{phase}|{row.name}", 0.0))
        for row in diagnosis.modules
        if row.phase == phase and row.name
    }


def _lines(diagnosis: Diagnosis, cause: str) -> dict[str, float]:
    times: dict[str, float] = {}
    for row in diagnosis.idle:
        if row.cause == cause and row.source:
            times[row.source] = times.get(row.source, 0.0) + row.time_s
    return times


def _place(own: Mapping[str, float], others: Sequence[Mapping[str, float]]) -> str | None:
    """Where the time is longer than at the others; ``None`` if that cannot be told."""
    excess = _excess(own, others)
    largest = max(excess, key=lambda name: excess[name], default=None)
    return largest if largest is not None and excess[largest] > 0 else None


# Sentences

_CAUSES = {
    "overhead.python": "Python",
    "overhead.dispatch": "dispatching ops",
    "overhead.data_loading": "loading data",
    "overhead.asleep": "sleeping",
    "overhead.garbage_collection": "Python's garbage collector",
    "overhead.compilation": "compilation",
    "overhead.allocation": "the allocator",
    "overhead.launch": "launching kernels",
    "overhead.kernel_gap": "gaps between queued kernels",
    "overhead.synchronisation": "waiting for its device",
    "memory.copies": "copies between host and device",
}


def cause_text(job: JobRecord) -> str:
    """What takes longer on the slowest rank, in words: ``"kernels of backward"``."""
    return cause_words(job.cause or "", job.phase)


def cause_words(cause: str, phase: str | None = None) -> str:
    """A part of the step in words: a leaf of overhead, or kernels (of a phase)."""
    if cause == KERNELS:
        return f"kernels of {phase}" if phase else "kernels"
    return _CAUSES.get(cause, cause.rpartition(".")[2].replace("_", " "))


def _sentence(job: JobRecord) -> str:
    where = f", most of it at {job.place}" if job.place else ""
    loss = "The job loses that time."
    if job.excess_s and job.lost_s and job.lost_s > MORE_FROM * job.excess_s:
        loss = f"With what it does around that the job loses {time_text(job.lost_s)} per step."
    elif job.excess_s and job.lost_s is not None and job.lost_s * MORE_FROM < job.excess_s:
        lost = time_text(max(job.lost_s, 0.0))
        loss = f"Some of it is a wait for a processor: the job loses {lost} per step."
    return (
        f"The other ranks wait for rank {job.slowest}: it spends {time_text(job.excess_s)} per "
        f"step more than they do on {cause_text(job)}{where}. {loss}"
    )


def _why(index: int, compared: JobComparison, job: JobRecord, ranks: int) -> str | None:
    rank = compared.ranks[index]
    if rank == job.slowest:
        more = time_text(job.excess_s)
        return f"arrives last: {more} more per step than the others on {cause_text(job)}"
    if ranks < 2 or compared.waited_share[index] is None:
        return None
    waits = compared.waits_for_ns[index]
    own_s = float(waits.sum()) * 1e-9
    if own_s < 5e-7:
        return "waits for no other rank"
    most = int(waits.argmax())
    return (
        f"waits {time_text(own_s)} per step, {time_text(float(waits[most]) * 1e-9)} of it for rank "
        f"{compared.ranks[most]}"
    )
