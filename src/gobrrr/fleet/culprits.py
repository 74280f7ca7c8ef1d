"""Who holds the others up, and what of its own step is longer than theirs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.leaves import LEAVES
from gobrrr.fleet.folder import FileRow, FleetFolder
from gobrrr.fleet.merge import RunFigures
from gobrrr.fleet.verdict import Culprit
from gobrrr.ranks.job import MATTERS_FROM, SURE_FROM, ahead_of, most_sure
from gobrrr.ranks.rank_record import KERNELS
from gobrrr.ranks.ranks import WAIT_MATTERS_FROM

Float64 = NDArray[np.float64]

MOST_CULPRITS = 10
# Of all waiting, as odds: a rank, or a host, stands out if so many times what chance gives it.
ODDS_FROM = 4.0
# A host is named if no rank of it holds more than this share of what the host is waited for.
ONE_OF_HOST = 0.8
# Ranks of a host share a fault if each has this share of what the first of them has of it.
ALIKE_FROM = 0.5
# How many other ranks a place is compared with.
_REFERENCES = 8
# Fewer steps say nothing about chance.
_FEWEST_STEPS = 4
_OF_NETWORK = ("memory.network", "memory.network_wait")
_ALONE = tuple(
    leaf
    for leaf in LEAVES
    if leaf == "memory.copies"
    or (leaf.startswith("overhead.") and leaf != "overhead.kernel_fixed_cost")
)
# What a rank can be slow in: its kernels, its copies, and each kind of overhead.
PARTS: dict[str, tuple[str, ...]] = {
    KERNELS: tuple(leaf for leaf in LEAVES if leaf not in (*_OF_NETWORK, *_ALONE)),
    **{leaf: (leaf,) for leaf in _ALONE},
}


def culprits_of(found: RunFigures, folder: FleetFolder) -> tuple[Culprit | None, list[Culprit]]:
    """Who stands out, if anybody, and the ranks that others wait for most.

    A host stands out rather than a rank where several of its ranks hold the others up, or most are
    slow in what the last of them is slow in. Without collectives to compare, ranks are ordered by
    how much busier they are.

    Args:
        found: the run.
        folder: where the tables of its ranks are, for the places.
    """
    if len(found.files) < 2:
        return None, []
    caused = found.caused_s
    order = np.argsort(-(found.busier_s if caused is None else caused), kind="stable")
    first = [i for i in order.tolist() if caused is None or caused[i] > 0][:MOST_CULPRITS]
    listed = [_culprit(found, folder, [i]) for i in first]
    named = None
    host = _host_first(found)
    if host is not None and _stands_out(found, host):
        named = _culprit(found, folder, host, whole_host=True)
    elif first and _stands_out(found, first[:1]):
        named = listed[0]
        alike = _with_its_fault(found, first[0], named)
        if len(alike) > 1:
            named = _culprit(found, folder, alike, whole_host=True)
    if caused is None:
        listed = [each for each in listed if each.busier_s > 0]
    return named, listed


def _host_first(found: RunFigures) -> list[int] | None:
    """The ranks of the host that others wait for most, if more than one of them is to blame."""
    hosts: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(found.files):
        if row.host is None:
            return None
        hosts[row.host].append(i)
    if len(hosts) < 2:
        return None
    blame = found.caused_s if found.waits_s is not None else np.maximum(found.busier_s, 0.0)
    assert blame is not None
    members = max(hosts.values(), key=lambda rows: float(blame[rows].sum()))
    total = float(blame[members].sum())
    if len(members) < 2 or total <= 0 or float(blame[members].max()) > ONE_OF_HOST * total:
        return None
    return members


def _with_its_fault(found: RunFigures, first: int, culprit: Culprit) -> list[int]:
    """The ranks of a rank's host, if most are slow in the same; else it alone.

    Others wait for the last of them: that one alone made faster would win little.
    """
    host = found.files[first].host
    rows = [i for i, row in enumerate(found.files) if host is not None and row.host == host]
    if culprit.part is None or culprit.excess_s is None or len(rows) in (0, len(found.files)):
        return [first]
    columns = [LEAVES.index(leaf) for leaf in PARTS[culprit.part]]
    times = found.leaves_s[:, columns].sum(axis=1)
    beyond = times[rows] - np.median(times[_others(found, rows)])
    return rows if np.mean(beyond >= ALIKE_FROM * culprit.excess_s) > 0.5 else [first]


def _others(found: RunFigures, members: Sequence[int]) -> list[int]:
    """Ranks that the members are held against: none of their host, which may share their fault."""
    hosts = {found.files[i].host for i in members} - {None}
    inside = set(members)
    rest = [i for i in range(len(found.files)) if i not in inside]
    elsewhere = [i for i in rest if found.files[i].host not in hosts]
    return elsewhere or rest


def _caused(found: RunFigures, members: Sequence[int]) -> tuple[float | None, float | None]:
    """How long each other rank waits for the members, the mean; their share of all waiting."""
    if found.waits_s is None:
        return None, None
    outside = [i for i in range(len(found.files)) if i not in set(members)]
    blamed = float(found.waits_s[np.ix_(outside, list(members))].sum())
    total = float(found.waits_s.sum())
    share = float(found.waits_s[:, list(members)].sum()) / total if total > 0 else 0.0
    return blamed / max(1, len(outside)), share


def _ahead(found: RunFigures, members: Sequence[int]) -> tuple[float, float, int, int]:
    own = np.concatenate([found.beyond_s[i] for i in members])
    others = np.concatenate([found.beyond_s[i] for i in _others(found, members)])
    shift, sure = ahead_of(own, others)
    return shift, sure, len(own), len(others)


def _stands_out(found: RunFigures, members: Sequence[int]) -> bool:
    step_s = float(np.median(np.concatenate(found.step_s)))
    caused, share = _caused(found, members)
    shift, sure, own, others = _ahead(found, members)
    # Nearly all of the pairs, where there are too few steps for so many deviations.
    certain = own >= _FEWEST_STEPS and sure >= min(SURE_FROM, 0.9 * most_sure(own, others))
    if caused is None or share is None:
        return certain and shift > MATTERS_FROM * step_s
    fair = len(members) / len(found.files)
    odds = ODDS_FROM * fair / (1.0 - fair)
    if caused <= WAIT_MATTERS_FROM * step_s or share <= odds / (1.0 + odds):
        return False
    # A few steps cannot tell chance: what the others waited has to do.
    return certain or own < _FEWEST_STEPS


def _culprit(
    found: RunFigures, folder: FleetFolder, members: Sequence[int], *, whole_host: bool = False
) -> Culprit:
    others = _others(found, members)
    own = found.leaves_s[list(members)].mean(axis=0)
    excess = dict(zip(LEAVES, own - np.median(found.leaves_s[others], axis=0)))
    by_part = {part: sum(excess[leaf] for leaf in leaves) for part, leaves in PARTS.items()}
    part: str | None = max(by_part, key=lambda name: by_part[name])
    assert part is not None
    caused, share = _caused(found, members)
    excess_s = float(by_part[part])
    leaf: str | None = max(PARTS[part], key=lambda name: excess[name])
    place = None
    if excess_s > 0:
        rows = [found.files[i] for i in members]
        place = _place(folder, rows, [found.files[i] for i in others], part)
    else:
        part = leaf = None
    return Culprit(
        ranks=[found.files[i].rank or 0 for i in members],
        host=found.files[members[0]].host,
        whole_host=whole_host,
        caused_s=caused,
        share=share,
        busier_s=_ahead(found, members)[0],
        part=part,
        leaf=leaf,
        excess_s=excess_s if part is not None else None,
        place=place,
    )


def _place(
    folder: FleetFolder, own: Sequence[FileRow], others: Sequence[FileRow], part: str
) -> str | None:
    """Where the part takes longer than elsewhere: a line, or an op with its module and phase."""
    spread = others[:: max(1, len(others) // _REFERENCES)][:_REFERENCES]
    mine = [_times(folder, row, part) for row in own[:_REFERENCES]]
    theirs = [_times(folder, row, part) for row in spread]
    names = set().union(*mine)
    excess = {
        name: median(times.get(name, 0.0) for times in mine)
        - median(times.get(name, 0.0) for times in theirs)
        for name in names
    }
    longest = max(sorted(excess), key=lambda name: excess[name], default=None)
    return longest if longest is not None and excess[longest] > 0 else None


def _times(folder: FleetFolder, row: FileRow, part: str) -> dict[str, float]:
    """Seconds per step by place."""
    times: dict[str, float] = defaultdict(float)
    if part == KERNELS:
        for each in folder.read_rank("ops", row).to_pylist():
            where = " ".join(filter(None, (each["op"], each["module"], each["phase"])))
            times[where] += each["s"]
        return times
    cause = part.removeprefix("overhead.")
    for each in folder.read_rank("lines", row).to_pylist():
        where = each["source"] or each["detail"]
        if each["cause"] == cause and where:
            times[where] += each["s"]
    return times
