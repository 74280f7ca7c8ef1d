"""Several ranks side by side: who waits for whom, and where that time goes.

A collective's kernel starts when its rank arrives and ends, on all ranks, when the data are across.
So of one collective the rank with the shortest kernel came last and waited for nobody: its duration
is the transfer, and what the others took beyond it is waiting. No clocks are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.collectives import (
    CollectiveFigures,
    Exposure,
    Matched,
    match_collectives,
)
from gobrrr.attribution.device.attribute import DeviceAttribution
from gobrrr.attribution.device.attributed import exposure_of_device
from gobrrr.attribution.leaves import LEAVES, Attribution
from gobrrr.timeline import intervals
from gobrrr.timeline.data import Timeline
from gobrrr.timeline.quantities import time_text

Float64 = NDArray[np.float64]

# Below this share of a step, waiting is jitter and nobody is late.
WAIT_MATTERS_FROM = 0.01


@dataclass(frozen=True)
class RankEvidence:
    """What a rank is compared by: its collectives, and where its steps go.

    ``exposure`` and ``owned`` are of the kernels of ``timeline``, of which only the collectives
    matter: others may be left out.
    """

    timeline: Timeline
    attribution: Attribution
    exposure: Exposure
    owned: intervals.Pieces


@dataclass(frozen=True)
class RankFigures:
    """One rank: its attribution, with waiting apart from transfer, and why it stands out.

    ``wait_ns`` is exposed waiting per step (``None``: nothing could be compared), ``waits_for_ns``
    the same by the rank that came last, in the order of the ranks.
    """

    rank: int
    attribution: Attribution
    wait_ns: float | None
    waits_for_ns: tuple[float, ...]
    why: str


@dataclass(frozen=True)
class RankComparison:
    """All ranks. ``slowest`` is the rank that the others wait for most; ``None``: there is none.

    ``matched`` is what was found of each rank's kernels.
    """

    ranks: tuple[RankFigures, ...]
    collectives: tuple[CollectiveFigures, ...]
    slowest: int | None
    missing: tuple[int, ...]
    matched: tuple[Matched, ...]
    notices: tuple[str, ...]


def compare_ranks(
    timelines: Sequence[Timeline],
    found: Sequence[DeviceAttribution],
    missing: Sequence[int] = (),
) -> RankComparison:
    """Compares ranks of one run; ``timelines`` and ``found`` are aligned and sorted by rank.

    Waiting moves from ``memory.network`` to ``memory.network_wait`` for collectives of which every
    member is present; of others the last to arrive may be one that is missing.
    """
    evidence = [evidence_of(timeline, result) for timeline, result in zip(timelines, found)]
    return compare_evidence(evidence, missing)


def evidence_of(timeline: Timeline, found: DeviceAttribution) -> RankEvidence:
    """What an attributed timeline says of its rank."""
    return RankEvidence(timeline, found.attribution, exposure_of_device(found), found.owned)


def compare_evidence(
    evidence: Sequence[RankEvidence], missing: Sequence[int] = ()
) -> RankComparison:
    """``compare_ranks`` of what is known of each rank, sorted by rank.

    Raises ValueError if a timeline has no rank.
    """
    timelines = [each.timeline for each in evidence]
    ranks = [timeline.rank for timeline in timelines if timeline.rank is not None]
    if len(ranks) < len(timelines):
        raise ValueError("a timeline of several has no rank")
    figures, matched = match_collectives(
        timelines, [each.exposure for each in evidence], ranks, not missing
    )
    known = any(figure.matched for figure in figures)
    split, table = [], np.zeros((len(ranks), len(ranks)))
    for i, (each, match) in enumerate(zip(evidence, matched)):
        part, table[i] = _with_wait(each, match, len(ranks))
        split.append(part)
    longest = max((part.step_ns for part in split), default=0.0)
    blamed = table.sum(axis=0)
    late = known and float(blamed.max()) > WAIT_MATTERS_FROM * longest
    slowest = int(np.argmax(blamed)) if late else None
    return RankComparison(
        ranks=tuple(
            RankFigures(
                rank,
                split[i],
                float(table[i].sum()) if known else None,
                tuple(table[i].tolist()),
                _why(i, split, table, slowest, ranks),
            )
            for i, rank in enumerate(ranks)
        ),
        collectives=figures,
        slowest=None if slowest is None else ranks[slowest],
        missing=tuple(missing),
        matched=matched,
        notices=_notices(figures, len(ranks), missing),
    )


def _notices(
    figures: Sequence[CollectiveFigures], given: int, missing: Sequence[int]
) -> tuple[str, ...]:
    notices = []
    if missing:
        listed = ", ".join(map(str, missing[:8])) + (" and more" if len(missing) > 8 else "")
        verb = "traces of {} ranks are" if len(missing) > 1 else "the trace of {} rank is"
        text = f"{verb.format(len(missing))} missing ({listed})"
        text += ": the others may wait for one of them, so waiting and transfer are not separated"
        text += " except in groups that are complete." if any(f.complete for f in figures) else "."
        notices.append(text[0].upper() + text[1:])
    loose = sum(not figure.matched for figure in figures)
    if loose and given > 1:
        kinds = "kind of collective is" if loose == 1 else "kinds of collectives are"
        notices.append(
            f"{loose} {kinds} left out of the comparison of ranks: the ranks of the group do not "
            "call it equally often per step, or it connects only two ranks."
        )
    return tuple(notices)


def _with_wait(found: RankEvidence, match: Matched, ranks: int) -> tuple[Attribution, Float64]:
    """The attribution with exposed waiting apart, and exposed waiting per step by last rank.

    A collective waits first and transfers last; what another kernel hides is no waiting.
    """
    timeline, attribution = found.timeline, found.attribution
    kernels = timeline.kernels
    rows = found.owned.row
    until = kernels.start_ns[rows] + np.rint(match.wait_ns[rows]).astype(np.int64)
    start = found.owned.start
    end = np.maximum(np.minimum(found.owned.end, until), start)
    pieces, window = intervals.clip_to_windows(start, end, timeline.steps)
    length = (pieces.end - pieces.start).astype(np.float64)
    row = rows[pieces.row]
    waiting = match.last[row] >= 0
    by_rank = np.bincount(match.last[row[waiting]], weights=length[waiting], minlength=ranks)
    told = waiting & match.complete[row]
    waited = np.bincount(window[told], weights=length[told], minlength=len(timeline.steps))
    windows = []
    for leaves, amount in zip(attribution.windows, waited.tolist()):
        part = min(amount, leaves["memory.network"])
        windows.append(
            {
                **leaves,
                "memory.network": leaves["memory.network"] - part,
                "memory.network_wait": leaves["memory.network_wait"] + part,
            }
        )
    table = np.array([[window[leaf] for leaf in LEAVES] for window in windows])
    means = dict(zip(LEAVES, table.mean(axis=0).tolist()))
    result = replace(attribution, leaves_ns=means, windows=tuple(windows))
    result.check()
    return result, by_rank / len(timeline.steps)


# What a rank can be slow in, and the words for it.
_PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("data loading", ("overhead.data_loading",)),
    ("host work", (
        "overhead.python", "overhead.dispatch", "overhead.launch", "overhead.synchronisation",
        "overhead.allocation", "overhead.compilation", "overhead.garbage_collection")),
    ("copies", ("memory.copies",)),
    ("kernels", ("compute.", "memory.device", "memory.unmodelled", "unmodelled",
                 "overhead.kernel_fixed_cost", "overhead.kernel_gap")),
    ("idle time without a known cause", ("overhead.unexplained",)),
)  # fmt: skip


def _why(
    index: int,
    split: Sequence[Attribution],
    table: Float64,
    slowest: int | None,
    ranks: Sequence[int],
) -> str:
    """One clause on what sets the rank apart from the mean of the others."""
    if len(split) < 2 or slowest is None:
        return ""
    if index != slowest:
        own, for_slowest = float(table[index].sum()) / 1e9, float(table[index, slowest]) / 1e9
        if own < 5e-7:
            return "waits for no other rank"
        share = "all" if for_slowest > 0.999 * own else time_text(for_slowest)
        return f"waits {time_text(own)} per step, {share} of it for rank {ranks[slowest]}"
    excess = {}
    for label, prefixes in _PARTS:
        amounts = [
            sum(v for leaf, v in part.leaves_ns.items() if leaf.startswith(prefixes))
            for part in split
        ]
        others = [a for i, a in enumerate(amounts) if i != index]
        excess[label] = amounts[index] - sum(others) / len(others)
    label = max(excess, key=lambda name: excess[name])
    if excess[label] <= 0:
        return "arrives last, though no part of its own step takes longer"
    more = time_text(excess[label] / 1e9)
    return f"arrives last: {more} more per step than the others on {label}"
