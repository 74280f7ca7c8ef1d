"""What is to be known of a job beside its figures: who is missing, late, or not compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

from gobrrr.diagnosis.records import shown_rank_notice
from gobrrr.diagnosis.schema import Diagnosis, JobRecord
from gobrrr.ranks.job import JobComparison
from gobrrr.timeline.quantities import percent, time_text

# A rank that comes later than this to where the ranks first meet is worth a sentence.
LATE_FROM_S = 1.0


def name_late_start(job: JobRecord, joined_s: Mapping[int, float], compared: JobComparison) -> None:
    """Names the rank that came latest to where the ranks first meet, if it is late.

    ``joined_s``: when each came, by its clock. Only ranks whose clocks are tied together are
    compared: those of two hosts may be any time apart.
    """
    late: list[tuple[float, int]] = []
    for of in {clock.of for clock in compared.clocks}:
        came = {
            rank: joined_s[rank] - clock.ahead_ns * 1e-9
            for rank, clock in zip(compared.ranks, compared.clocks)
            if clock.of == of and rank in joined_s
        }
        if len(came) > 1:
            last = max(came, key=lambda rank: came[rank])
            others = median(s for rank, s in came.items() if rank != last)
            late.append((came[last] - others, last))
    late_s, last = max(late, default=(0.0, -1))
    if late_s > LATE_FROM_S:
        job.late_start, job.late_start_s = last, late_s


def notices_of_job(job: JobRecord, shown: int, alone: Mapping[int, str]) -> list[str]:
    """Sentences about the job; ``alone``: why ranks were measured on their own."""
    which = "which is busy as long as the others"
    if job.slowest == shown:
        which = "for which the others wait"
    elif job.longest_rank == shown:
        which = "which is busy longest"
    notices = [shown_rank_notice(shown, which)]
    if job.missing:
        reasons = "; ".join(dict.fromkeys(job.missing.values()))
        listed = ", ".join(job.missing)
        ranks = "rank" if len(job.missing) == 1 else "ranks"
        notices.append(f"Not in the report: {ranks} {listed} of {job.world_size}: {reasons}.")
    if job.ended:
        who: dict[str, list[int]] = {}
        for rank, how in job.ended.items():
            who.setdefault(how, []).append(int(rank))
        told = "; ".join(f"{_ranks(ranks)} ({how})" for how, ranks in who.items())
        notices.append(f"Ended before all was measured: {told}.")
    if alone:
        own = "was measured on its own" if len(alone) == 1 else "were measured on their own"
        notices.append(
            f"{_ranks(sorted(alone)).capitalize()} {own} ({alone[min(alone)]}): how long ranks "
            "wait for each other, and for which of them, is not known."
        )
    if job.clocks_apart:
        are = "is on another host" if len(job.clocks_apart) == 1 else "are on other hosts"
        notices.append(
            f"{_ranks(job.clocks_apart).capitalize()} {are}, and no collective that both measured "
            "tells how far the clocks are apart from that of the first rank: which of them "
            "comes later, to a collective or at the start, is not known."
        )
    if job.late_start is not None:
        others = "those whose clocks can be compared with its" if job.clocks_apart else "the others"
        notices.append(
            f"Rank {job.late_start} created its process group {time_text(job.late_start_s)} "
            f"after {others}: that time is outside the steps."
        )
    return notices


def _ranks(ranks: Sequence[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


# From which share of the ops of two ranks' steps on they are other programs, or stages of one.
_DIFFERENT_FROM = 0.1


def different_work(found: Mapping[int, Diagnosis]) -> list[str]:
    """A sentence if ranks run other ops than the first one does: a model of their own, a stage."""
    ops = {rank: _ops(diagnosis) for rank, diagnosis in found.items()}
    first = min(ops)
    apart = {rank: _apart(own, ops[first]) for rank, own in ops.items()}
    others = [rank for rank, share in apart.items() if share > _DIFFERENT_FROM]
    if not others:
        return []
    own = f"rank {others[0]} runs" if len(others) == 1 else f"{len(others)} ranks run"
    share = percent(max(apart.values()))
    return [
        f"The ranks do not run the same ops: {own} another model, or another stage of it, than "
        f"rank {first} ({share} of the ops of both steps differ). What takes a rank longer may be "
        "that."
    ]


def _ops(diagnosis: Diagnosis) -> Counter[str]:
    """How often each op runs in a step; communication, which ranks may share unevenly, apart."""
    counts: Counter[str] = Counter()
    for row in diagnosis.ops:
        if "c10d" not in row.name:
            counts[row.name] += round(row.count)
    return counts


def _apart(one: Counter[str], other: Counter[str]) -> float:
    total = sum((one + other).values())
    return sum(((one - other) + (other - one)).values()) / total if total else 0.0
