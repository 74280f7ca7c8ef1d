"""The clocks of a job's hosts, brought together where collectives tell how far they are apart.

Processes of one host share a clock; those of two hosts may be any time apart. A collective in which
each rank needs something of every other ends on all of them at about the same moment: any two ranks
that share one tie their hosts together, and hosts are tied through others. So do messages between
two ranks where they go both ways: one is late by how long it takes and by how far the clocks are
apart, the other by how long it takes less that (Mills, "Internet time synchronization: the Network
Time Protocol", 1991). A broadcast, or messages one way, tell no more than an order.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from gobrrr.attribution.collectives import OF_PAIR, same_calls
from gobrrr.ranks.rank_record import RankRecord, timeline_of
from gobrrr.timeline.data import Int64, Timeline

# Each rank needs something of every other, so that none ends before the last has come. Without a
# name only kernels of a device are recorded, which end together but for the last message.
_END_TOGETHER = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier|^$", re.IGNORECASE
)

# (host, another) -> by how much the clock of the other is ahead, in ns.
_Ties = dict[tuple[int, int], int]


class Clock(NamedTuple):
    """The clock of a rank's times.

    ``of``: times of ranks that have this in common can be compared, once ``ahead_ns``, by how much
    the clock is ahead of the one of the first such rank, is taken off. It is 0 for the first rank
    of all and those that are tied to it.
    """

    of: int
    ahead_ns: int


def clocks_of(records: Sequence[RankRecord]) -> tuple[Clock, ...]:
    """The clock of each rank.

    Hosts that nothing ties together are apart; so are all hosts if a rank did not take the steps
    of the others, because their collectives are not the same ones then.
    """
    hosts = _numbered([record.host for record in records])
    ties: _Ties = {}
    if max(hosts, default=0) > 0 and not any(record.alone for record in records):
        ties = _ties([timeline_of(record) for record in records], hosts)
    of_host = _spread(1 + max(hosts, default=0), ties)
    return tuple(of_host[host] for host in hosts)


def _numbered(names: Sequence[str]) -> list[int]:
    """Each name's place among the different ones, in order."""
    places: dict[str, int] = {}
    return [places.setdefault(name, len(places)) for name in names]


def _ties(timelines: Sequence[Timeline], hosts: Sequence[int]) -> _Ties:
    """By how much the clocks of hosts that collectives or messages both ways connect are apart."""
    host_of = {timeline.rank: host for timeline, host in zip(timelines, hosts)}
    together: dict[tuple[int, int], list[int]] = defaultdict(list)
    # (from which host, to which) -> when a message was there less when it had been sent.
    messages: dict[tuple[int, int], list[int]] = defaultdict(list)
    for found in same_calls(timelines):
        ends: dict[int, Int64] = {}
        for member, rows in zip(found.members, found.rows):
            own = timelines[member].kernels.end_ns[rows]
            # What else runs makes a rank see the end later, never earlier.
            ends[hosts[member]] = np.minimum(own, ends.get(hosts[member], own))
        pair = OF_PAIR.fullmatch(found.name)
        # All to the first of them: each pair of many hosts would be as many times as much.
        first, *rest = sorted(ends)
        for one, other in ((first, host) for host in rest):
            if pair is not None:
                way = host_of.get(int(pair[1]), -1), host_of.get(int(pair[2]), -1)
                # A program may number its ranks otherwise than its launcher does.
                if sorted(way) == [one, other]:
                    messages[way] += (ends[way[1]] - ends[way[0]]).tolist()
            elif _END_TOGETHER.search(found.name):
                together[one, other] += (ends[other] - ends[one]).tolist()
    ties = {hosts_of: round(median(apart)) for hosts_of, apart in together.items()}
    for (one, other), there in messages.items():
        back = messages.get((other, one))
        if one < other and back is not None and (one, other) not in ties:
            # The quickest of each way: a message may be taken late, and is never there early.
            ties[one, other] = (min(there) - min(back)) // 2
    return ties


def _spread(hosts: int, ties: _Ties) -> list[Clock]:
    """The clock of each host, from the first of those it is tied to, over the fewest ties."""
    neighbours: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for (one, other), ahead_ns in ties.items():
        neighbours[one].append((other, ahead_ns))
        neighbours[other].append((one, -ahead_ns))
    found: dict[int, Clock] = {}
    for first in range(hosts):
        if first in found:
            continue
        found[first] = Clock(first, 0)
        reached = [first]
        for host in reached:
            for other, ahead_ns in neighbours[host]:
                if other not in found:
                    found[other] = Clock(first, found[host].ahead_ns + ahead_ns)
                    reached.append(other)
    return [found[host] for host in range(hosts)]


def residual_ns(timelines: Sequence[Timeline], clocks: Sequence[Clock]) -> float | None:
    """How far apart ranks see the same collectives end, once the clocks are together: the median.

    Each rank beside the first one before it that it shares collectives with; ``None`` if no two
    ranks share any. ``timelines`` are on the common clock.
    """
    apart: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for found in same_calls(timelines):
        ends = [timelines[i].kernels.end_ns[rows] for i, rows in zip(found.members, found.rows)]
        first_of: dict[int, int] = {}
        for place, rank in enumerate(found.members):
            first = first_of.setdefault(clocks[rank].of, place)
            if first < place:
                differences = np.abs(ends[place] - ends[first]).tolist()
                apart[rank][found.members[first]] += differences
    told = [ns for beside in apart.values() for ns in beside[min(beside)]]
    return float(median(told)) if told else None
