"""The ranks of a run side by side, from their tables: who waited for whom, and how long.

The comparison is that of recorded ranks (``ranks.ranks``): of one collective the rank with
the shortest kernel came last, its duration is the transfer, and what the others took beyond it is
waiting. No clocks are compared, so that hosts whose clocks differ need no correction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gobrrr.attribution.leaves import LEAVES
from gobrrr.fleet.evidence import CallTable, StepTable, evidence_of_run
from gobrrr.fleet.folder import FileRow, FleetFolder
from gobrrr.fleet.schema import LEAF_COLUMNS
from gobrrr.ranks.ranks import RankComparison, compare_evidence
from gobrrr.recordings.ranks import APART_FROM_S
from gobrrr.timeline.quantities import time_text

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

NETWORK, WAIT = LEAVES.index("memory.network"), LEAVES.index("memory.network_wait")
_MOST_LISTED = 8


@dataclass(frozen=True)
class RunFigures:
    """The ranks of a run, rows in their order; seconds per step.

    Attributes:
        files: what each was read from.
        leaves_s: (ranks, leaves), means; waiting apart from transfer where it could be told.
        step_s: the steps of each rank.
        beyond_s: by how much each of its steps without the network is longer than the median of all
            ranks in the same step; of a rank whose steps have no leaves, the whole step.
        waits_s: [i, j] how long rank i waits for rank j; ``None``: no collective could be compared.
        complete: whether waiting could be told from transfer in any collective.
        world_size: as the traces say; ``None``: they do not.
        notices: what was left out, and what could not be compared.
    """

    run: str
    files: tuple[FileRow, ...]
    leaves_s: Float64
    step_s: tuple[Float64, ...]
    beyond_s: tuple[Float64, ...]
    waits_s: Float64 | None
    complete: bool
    world_size: int | None
    notices: tuple[str, ...]

    @property
    def busier_s(self) -> Float64:
        """By how much each is busier in a step, the mean of ``beyond_s``."""
        return np.array([each.mean() if len(each) else 0.0 for each in self.beyond_s])

    @property
    def ranks(self) -> list[int]:
        """Their numbers."""
        return [row.rank or 0 for row in self.files]

    @property
    def caused_s(self) -> Float64 | None:
        """How long each other rank waits for each, the mean."""
        if self.waits_s is None:
            return None
        caused: Float64 = self.waits_s.sum(axis=0) / max(1, len(self.files) - 1)
        return caused


def merge_run(folder: FleetFolder, run: str, rows: Sequence[FileRow]) -> RunFigures:
    """Compares the ranks of a run and writes what they waited beside their tables.

    Args:
        folder: where the tables are.
        run: its name.
        rows: the files that were read, by rank; at least one.
    """
    kept, world_size, notices = _of_one_size(rows)
    ranks = [row.rank or 0 for row in kept]
    missing = sorted(set(range(world_size or 0)).difference(ranks))
    steps = StepTable.of(folder.read("steps", run))
    calls = CallTable.of(folder.read("collectives", run))
    evidence = evidence_of_run(ranks, world_size, steps, calls)
    compared = compare_evidence(evidence, missing)
    place_of = {rank: place for place, rank in enumerate(ranks)}
    places = [place_of[each.timeline.rank or 0] for each in evidence]
    known = any(figure.matched for figure in compared.collectives)
    waits = np.zeros((len(ranks), len(ranks)))
    for place, rank in zip(places, compared.ranks):
        waits[place, places] = np.array(rank.waits_for_ns) * 1e-9
    leaves = np.zeros((len(ranks), len(LEAVES)))
    for place in set(range(len(ranks))).difference(places):
        leaves[place] = _means_s(folder, kept[place])
    for place, rank in zip(places, compared.ranks):
        leaves[place] = [rank.attribution.leaves_ns[leaf] * 1e-9 for leaf in LEAVES]
    step_s, beyond_s = _steps_of(steps, ranks)
    found = RunFigures(
        run=run,
        files=tuple(kept),
        leaves_s=leaves,
        step_s=step_s,
        beyond_s=beyond_s,
        waits_s=waits if known else None,
        complete=any(f.matched and f.complete for f in compared.collectives),
        world_size=world_size,
        notices=(*notices, *_notices_of(kept, calls, known), *compared.notices),
    )
    _write(folder, found, compared, ranks, places)
    return found


def _of_one_size(
    rows: Sequence[FileRow],
) -> tuple[list[FileRow], int | None, list[str]]:
    """The files whose traces agree on how many ranks there are, and what is said of the others."""
    sizes = Counter(row.world_size for row in rows if row.world_size is not None)
    if not sizes:
        return list(rows), None, []
    size = sizes.most_common(1)[0][0]
    kept = [row for row in rows if row.world_size in (None, size)]
    others = [row for row in rows if row.world_size not in (None, size)]
    notices = []
    if others:
        listed = _listed([f"{row.path} ({row.world_size} ranks)" for row in others])
        notices.append(f"Left out, because the run has {size} ranks: {listed}.")
    beyond = [row for row in kept if (row.rank or 0) >= size]
    if beyond:
        listed = _listed([row.path for row in beyond])
        notices.append(f"The traces say that the run has {size} ranks; left out: {listed}.")
    return [row for row in kept if row not in beyond], size, notices


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_LISTED
    return ", ".join(names[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def _notices_of(rows: Sequence[FileRow], calls: CallTable, known: bool) -> list[str]:
    notices = []
    if not len(calls.rank):
        notices.append(
            "These traces have no collectives, so waiting cannot be seen: ranks are compared by "
            "the length of their steps."
        )
    elif not known and len(rows) > 1:
        notices.append(
            "No collective was recorded on all ranks of its group: ranks are compared by the "
            "length of their steps."
        )
    times = [row.recorded_ns for row in rows if row.recorded_ns is not None]
    if len(times) > 1:
        middle = median(times)
        far = [
            row
            for row in rows
            if row.recorded_ns is not None and abs(row.recorded_ns - middle) > APART_FROM_S * 1e9
        ]
        if far:
            apart_s = max(abs((row.recorded_ns or 0) - middle) for row in far) / 1e9
            notices.append(
                f"Recorded up to {time_text(apart_s)} before or after the others, so perhaps from "
                f"another run: {_listed([row.path for row in far])}."
            )
    return notices


def _means_s(folder: FleetFolder, row: FileRow) -> list[float]:
    """Means of a rank of whose steps no more is known."""
    (means,) = folder.read_rank("means", row).to_pylist()
    return [means[name] for name in LEAF_COLUMNS]


def _steps_of(
    steps: StepTable, ranks: Sequence[int]
) -> tuple[tuple[Float64, ...], tuple[Float64, ...]]:
    whole: Float64 = np.asarray((steps.end_ns - steps.start_ns) * 1e-9, np.float64)
    network = np.nan_to_num(steps.leaves_ns[:, [NETWORK, WAIT]]).sum(axis=1) * 1e-9
    busy = np.maximum(whole - network, 0.0)
    # Steps differ among themselves: a rank is held against others in the same one.
    which = np.unique(np.array(steps.name), return_inverse=True)[1]
    order = np.argsort(which, kind="stable")
    for rows in np.split(order, np.cumsum(np.bincount(which))[:-1]):
        busy[rows] -= np.median(busy[rows])
    cuts = [np.searchsorted(steps.rank, [rank, rank + 1]) for rank in ranks]
    return tuple(whole[a:b] for a, b in cuts), tuple(busy[a:b] for a, b in cuts)


def _write(
    folder: FleetFolder,
    found: RunFigures,
    compared: RankComparison,
    ranks: Sequence[int],
    places: Sequence[int],
) -> None:
    rank, call, wait, last = [], [], [], []
    numbers = np.array([ranks[place] for place in places] or [0], np.int64)
    for of_rank, match in zip(compared.ranks, compared.matched):
        count = len(match.wait_ns)
        rank.append(np.full(count, of_rank.rank, np.int64))
        call.append(np.arange(count, dtype=np.int32))
        wait.append(np.where(match.last >= 0, match.wait_ns * 1e-9, np.nan))
        last.append(np.where(match.last >= 0, numbers[match.last], -1))
    if rank:
        waited, came = np.concatenate(wait), np.concatenate(last)
        folder.write_merged(
            "waits",
            found.run,
            {
                "rank": np.concatenate(rank),
                "call": np.concatenate(call),
                "wait_s": pa.array(waited, mask=np.isnan(waited)),
                "last_rank": pa.array(came, mask=came < 0),
            },
        )
    caused = found.caused_s
    own = None if found.waits_s is None else found.waits_s.sum(axis=1)
    unknown = [None] * len(ranks)
    folder.write_merged(
        "paces",
        found.run,
        {
            "rank": pa.array(ranks, pa.int64()),
            "wait_s": pa.array(unknown if own is None else own, pa.float64()),
            "caused_s": pa.array(unknown if caused is None else caused, pa.float64()),
            "busier_s": found.busier_s,
        },
    )
