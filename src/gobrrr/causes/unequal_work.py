"""Ranks that take turns at being late: what differs is the work of each step, and no rank."""

from __future__ import annotations

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.fixes.facts import Facts
from gobrrr.timeline.quantities import percent, time_text

# Of its step, what each rank waits for others at the least: ranks that share a processor wait for
# each other's turn a little.
_WAITS = 0.06
# By so much of the step the work differs at the least: the processor time of equal work differs by
# less between ranks, also on a busy machine.
_UNEVEN = 0.1


def _find(facts: Facts) -> Found | None:
    ranks = [rank for rank in facts.ranks if rank.wait_s is not None and rank.step_s > 0]
    if len(ranks) < 2 or len(ranks) < len(facts.ranks) or facts.slowest_rank is not None:
        return None
    waits = {rank.rank: (rank.wait_s or 0.0) / rank.step_s for rank in ranks}
    mean_s = sum(rank.wait_s or 0.0 for rank in ranks) / len(ranks)
    # What a device has to do no processor time tells, but sizes that differ.
    uneven_s = mean_s if facts.on_gpu and facts.varying else facts.uneven_s
    if min(waits.values()) < _WAITS or (uneven_s or 0.0) < _UNEVEN * facts.step_s:
        return None
    told = ", ".join(f"rank {rank} {percent(share)}" for rank, share in sorted(waits.items()))
    high_s = uneven_s or 0.0
    return saves(
        f"every rank waits for the others for a part of its step ({told}), and in turn: whichever "
        f"has the most to do in a step needs {time_text(high_s)} more than the ranks do in the "
        "mean, and no rank does in most steps",
        (), 0.3 * high_s, 0.7 * high_s, high_s,
    )  # fmt: skip


UNEQUAL_WORK = Cause(
    name="unequal_work",
    title="ranks take turns at being late: unequal work in each step (balance the batches)",
    words=("load imbalance", "uneven work", "ranks take turns", "balance", "bucketing by length"),
    find=_find,
    remedy="batches of the same amount of work on all ranks in each step: sort or bucket by "
    "length (sequences of similar length at the same step on all ranks), pack to a fixed size",
)
