"""Loader workers that are started anew in each epoch: ``persistent_workers``."""

from __future__ import annotations

from gobrrr.causes.cause import Cause, Found, saves_of_wall
from gobrrr.diagnosis.facts import Facts
from gobrrr.live.watch.loader_watch import ENDING_WORKERS, STARTING_WORKERS
from gobrrr.timeline.quantities import count, percent, time_text

# Of fewer starts nothing says that they are repeated.
_FEWEST = 2


def _find(facts: Facts) -> Found | None:
    program = facts.program
    if program is None:
        return None
    loaders = [one for one in program.loaders or facts.loaders if one.workers]
    if loaders and all(one.persistent for one in loaders):
        # Each was begun once, at one line.
        return None
    starts = [mark for mark in program.marked(STARTING_WORKERS) if mark.count >= _FEWEST]
    times = sum(mark.count for mark in starts)
    if not times:
        return None
    # Workers of loaders that are begun once, and end once, are in none of these.
    ends = [mark for mark in program.marked(ENDING_WORKERS) if mark.count >= _FEWEST]
    share = sum(mark.share for mark in (*starts, *ends))
    each_s = sum(mark.total_s for mark in (*starts, *ends)) / times
    # With workers that live on an epoch still waits for its first batch.
    waits = min(0.5 * share, times * facts.leaf_s("overhead.data_loading") / program.plain_s)
    return saves_of_wall(
        f"the workers of a DataLoader were started {count(times)} times in "
        f"{count(program.windows)} steps; each start, with the wait for the first batch and the "
        f"end of the former workers, takes {time_text(each_s)}: {percent(share)} of the wall time",
        tuple(dict.fromkeys(mark.source for mark in starts if mark.source)),
        0.5 * (share - waits), share - waits, share,
    )  # fmt: skip


STARTED_WORKERS = Cause(
    name="workers_each_epoch",
    title="loader workers are started anew in each epoch (persistent_workers)",
    words=("persistent_workers", "slow first batch of each epoch", "DataLoader startup"),
    find=_find,
    remedy="DataLoader(..., num_workers=N, persistent_workers=True)",
)
