"""Ranks that take turns at being late: what differs is the work of each step, and no rank."""

from __future__ import annotations

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.fixes.facts import Facts
from gobrrr.timeline.quantities import percent, time_text

# Of its step, what each rank waits for others at the least where steps differ in size, and where
# nothing says that they do: ranks that share a processor wait for each other's turn a little.
_WAITS, _WAITS_OF_EQUAL = 0.06, 0.15


def _find(facts: Facts) -> Found | None:
    ranks = [rank for rank in facts.ranks if rank.wait_s is not None and rank.step_s > 0]
    if len(ranks) < 2 or len(ranks) < len(facts.ranks) or facts.slowest_rank is not None:
        return None
    waits = {rank.rank: (rank.wait_s or 0.0) / rank.step_s for rank in ranks}
    least = min(waits.values())
    if least < (_WAITS if facts.varying else _WAITS_OF_EQUAL):
        return None
    told = ", ".join(f"rank {rank} {percent(share)}" for rank, share in sorted(waits.items()))
    mean_s = sum(rank.wait_s or 0.0 for rank in ranks) / len(ranks)
    sizes = ", and steps differ in size" if facts.varying else ""
    return saves(
        f"every rank waits for the others for a part of its step ({told}), none of them is late "
        f"in most steps{sizes}: {time_text(mean_s)} a step, in the mean of the ranks",
        (), 0.3 * mean_s, 0.7 * mean_s, mean_s,
    )  # fmt: skip


UNEQUAL_WORK = Cause(
    name="unequal_work",
    title="ranks take turns at being late: unequal work in each step (balance the batches)",
    words=("load imbalance", "uneven work", "ranks take turns", "balance", "bucketing by length"),
    find=_find,
    remedy="batches of the same amount of work on all ranks in each step: sort or bucket by "
    "length (sequences of similar length at the same step on all ranks), pack to a fixed size",
)
