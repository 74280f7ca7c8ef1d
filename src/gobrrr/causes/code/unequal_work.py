"""Ranks that take turns at being late: what differs is the work of each step, and no rank."""

from __future__ import annotations

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.diagnosis.facts import Facts
from gobrrr.timeline.quantities import percent, time_text

# Of the step: the processor time of equal work differs by 0.01 of it between ranks that share two
# busy processors (torch 2.13, gloo, steps of 40 ms).
_UNEVEN = 0.06


def _find(facts: Facts) -> Found | None:
    ranks = [rank for rank in facts.ranks if rank.wait_s is not None and rank.step_s > 0]
    if len(facts.ranks) < 2 or facts.slowest_rank is not None:
        return None
    uneven_s = facts.uneven_s
    if facts.on_gpu and facts.varying:
        # What a device has to do no processor time tells, but sizes that differ and waits of all.
        uneven_s = min((rank.wait_s or 0.0 for rank in ranks), default=0.0)
    if uneven_s is None or uneven_s < _UNEVEN * facts.step_s:
        return None
    told = ", ".join(f"rank {rank.rank} {time_text(rank.wait_s or 0.0)}" for rank in ranks)
    waits = f"; they wait for each other ({told})" if told else ""
    return saves(
        f"whichever of {len(facts.ranks)} ranks has the most to do in a step needs "
        f"{time_text(uneven_s)} more than the ranks do in the mean "
        f"({percent(uneven_s / facts.step_s)} of the step), and it is another one from step to "
        f"step{waits}",
        (), 0.3 * uneven_s, 0.7 * uneven_s, uneven_s,
    )  # fmt: skip


UNEQUAL_WORK = Cause(
    name="unequal_work",
    title="ranks take turns at being late: unequal work in each step (balance the batches)",
    words=("load imbalance", "uneven work", "ranks take turns", "balance", "bucketing by length"),
    find=_find,
    remedy="batches of the same amount of work on all ranks in each step: sort or bucket by "
    "length (sequences of similar length at the same step on all ranks), pack to a fixed size",
)
