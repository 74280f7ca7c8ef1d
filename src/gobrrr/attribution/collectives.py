"""Collectives of several ranks matched call by call: transfer, skew, bandwidth, exposure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.shared_links import shared_ns
from gobrrr.timeline.data import Collective, KernelKind, Timeline

Float64 = NDArray[np.float64]

# Bytes that cross each link per byte of the message, by algorithm-independent counting: NVIDIA,
# nccl-tests, doc/PERFORMANCE.md (n ranks).
_BUS_FACTORS = (
    (re.compile(r"all_?reduce", re.IGNORECASE), lambda n: 2 * (n - 1) / n),
    (re.compile(r"all_?gather|reduce_?scatter|all_?to_?all", re.IGNORECASE), lambda n: (n - 1) / n),
    (re.compile(r"broadcast|reduce|send|recv", re.IGNORECASE), lambda n: 1.0),
)
# Each rank sends and gets its own number of bytes, so that sizes do not match.
_UNEVEN = re.compile(r"all_?to_?all", re.IGNORECASE)
# From one rank to another: the two calls have two names, and others take no part.
_POINT_TO_POINT = re.compile(r"send|recv", re.IGNORECASE)
# Unless both sides are recorded under one (``live.profiles.collective_calls``).
OF_PAIR = re.compile(r"send from rank (\d+) to (\d+)")


@dataclass(frozen=True)
class CollectiveFigures:
    """One kind of collective (name, bytes, group); times are means per call unless per step.

    Attributes:
        name: ``allreduce``, or the kernel's own.
        bytes_moved: the larger of what goes in and comes out, of an all-to-all among several
            ranks the mean over its calls; ``None`` if not recorded.
        group_size: how many ranks take part; ``None`` if not recorded.
        ranks: those present that take part (``None``: a recording that does not say its own); the
            tuples below are in this order.
        calls: per step, the mean over the ranks.
        matched: whether some step has the same calls on all of ``ranks``. If not, or with one
            rank alone, what depends on comparing them is ``None``.
        complete: whether ``ranks`` are all that take part. If not, the last to arrive may be
            missing, and transfer and rates are ``None``.
        duration_ns: of the kernel on each rank, waiting included.
        wait_ns: what each rank took beyond the shortest of the call; ``None`` if not matched.
        skew_ns: the largest of them in a call.
        transfer_ns: the shortest duration among the ranks.
        exposed_ns, overlapped_ns: per step on each rank, with no other kernel running and with.
        last_rank: arrived last most often.
        algorithm_bytes_per_s: bytes / transfer; where collectives of the same ranks transfer beside
            each other (DDP's buckets), each counts its part of the time in which any did, by bytes.
        bus_bytes_per_s: that times the share of the message that crosses a link.
    """

    name: str
    bytes_moved: int | None
    group_size: int | None
    ranks: tuple[int | None, ...]
    calls: float
    matched: bool
    complete: bool
    duration_ns: tuple[float, ...]
    wait_ns: tuple[float, ...] | None
    skew_ns: float | None
    transfer_ns: float | None
    exposed_ns: tuple[float, ...]
    overlapped_ns: tuple[float, ...]
    last_rank: int | None
    algorithm_bytes_per_s: float | None
    bus_bytes_per_s: float | None


@dataclass(frozen=True)
class Exposure:
    """Of each row of ``Timeline.kernels``, ns per step: how long it ran, and with nothing else."""

    owned_ns: Float64
    duration_ns: Float64


@dataclass(frozen=True)
class Matched:
    """What was found about each kernel of one rank; rows are those of ``Timeline.kernels``.

    ``wait_ns`` is waiting for the rank with index ``last`` (-1: not compared); ``complete`` says
    whether every member of its group is present.
    """

    wait_ns: Float64
    last: NDArray[np.int64]
    complete: NDArray[np.bool_]


class _Kind(NamedTuple):
    """What calls must have in common to be the same collective."""

    name: str
    bytes_moved: int
    group: str
    group_size: int


# The call's number in its group where recorded, else the name of its step -> kernel rows, in order.
_Calls = dict[str | int, list[int]]


def match_collectives(
    timelines: Sequence[Timeline],
    found: Sequence[Exposure],
    ranks: Sequence[int | None],
    all_present: bool,
    *,
    clocks: Sequence[int] | None = None,
) -> tuple[tuple[CollectiveFigures, ...], tuple[Matched, ...]]:
    """Figures by kind, most exposed first, and what each rank's kernels waited.

    ``clocks``: which clock each timeline is on; on one clock the last to start is the last to come,
    and timelines of different clocks are not compared. Without, the last to come is the one with
    the shortest duration: of a device's kernels all end together.

    Calls match by name, bytes, group and their number in it (without one by step, in order), where
    each member has as many. With a recorded group size, its members are the ranks that have the
    call and ``complete`` says whether they are all; without, they are all ranks, complete if
    ``all_present``.
    """
    per_rank = [_calls(timeline, len(timelines) > 1) for timeline in timelines]
    matched = tuple(
        Matched(np.zeros(n), np.full(n, -1, np.int64), np.zeros(n, bool))
        for n in (len(timeline.kernels) for timeline in timelines)
    )
    durations = [timeline.kernels.end_ns - timeline.kernels.start_ns for timeline in timelines]
    kinds = [
        _figures(kind, per_rank, timelines, durations, found, ranks, all_present, matched, clocks)
        for kind in sorted(set().union(*per_rank))
    ]
    figures = _with_rates(kinds, timelines, matched)
    figures.sort(key=lambda f: -sum(f.exposed_ns) / len(f.ranks))
    return tuple(figures), matched


class SameCalls(NamedTuple):
    """Calls of one kind that are the same collectives: whose, and their rows, in order."""

    name: str
    members: list[int]
    rows: list[NDArray[np.int64]]


def same_calls(timelines: Sequence[Timeline]) -> Iterator[SameCalls]:
    """The collectives that ``match_collectives`` matches, kind by kind."""
    per_rank = [_calls(timeline, len(timelines) > 1) for timeline in timelines]
    for kind in sorted(set().union(*per_rank)):
        members, columns, _ = _members(kind, per_rank, False)
        if columns is not None:
            yield SameCalls(kind.name, members, columns)


def _members(
    kind: _Kind, per_rank: Sequence[dict[_Kind, _Calls]], all_present: bool
) -> tuple[list[int], list[NDArray[np.int64]] | None, bool]:
    """Who has calls of a kind, their matching rows (``None``: none), and whether they are all."""
    members = [i for i, calls in enumerate(per_rank) if kind in calls]
    comparable, complete = _comparable(kind, len(members), len(per_rank), all_present)
    columns = _columns([per_rank[i][kind] for i in members]) if comparable else None
    return members, columns, complete


def _calls(timeline: Timeline, compare: bool) -> dict[_Kind, _Calls]:
    """Collectives by kind and step. The step keeps a call from matching its neighbour's.

    ``compare``: all-to-alls of all sizes are one kind, for ranks that send different amounts.
    """
    kernels = timeline.kernels
    rows = np.flatnonzero(kernels.kind == KernelKind.COLLECTIVE)
    window = np.searchsorted(timeline.steps[:, 1], kernels.start_ns[rows], side="right")
    number = np.full(len(kernels), -1) if kernels.call_number is None else kernels.call_number
    found: dict[_Kind, _Calls] = defaultdict(lambda: defaultdict(list))
    columns = (rows, window, number[rows], *(c[rows] for c in _said(timeline)))
    kinds: dict[tuple[int, ...], _Kind] = {}
    for row, step, call, *said in zip(*(column.tolist() for column in columns)):
        kind = kinds.get(tuple(said))
        if kind is None:
            kind = kinds[tuple(said)] = _kind_of(timeline, row, compare)
        # A kernel of no length at the very end lies behind the last window.
        in_step = timeline.step_names[min(step, len(timeline.step_names) - 1)]
        found[kind][call if call >= 0 else in_step].append(row)
    return {kind: dict(calls) for kind, calls in found.items()}


def _said(timeline: Timeline) -> tuple[NDArray[Any], ...]:
    """Of each kernel what its kind follows from."""
    kernels = timeline.kernels
    return kernels.collective, kernels.bytes_moved, kernels.name


def _kind_of(timeline: Timeline, row: int, compare: bool) -> _Kind:
    index = int(timeline.kernels.collective[row])
    record = timeline.collectives[index] if index >= 0 else Collective("")
    name = collective_name(timeline, row)
    uneven = compare and _UNEVEN.search(name)
    moved = -1 if uneven else int(timeline.kernels.bytes_moved[row])
    return _Kind(name, moved, record.group or "", record.group_size or 0)


def collective_name(timeline: Timeline, row: int) -> str:
    """What a kernel does, as recorded (``allreduce``), else as its name says (``AllReduce``)."""
    index = int(timeline.kernels.collective[row])
    name = timeline.collectives[index].name.removeprefix("nccl:") if index >= 0 else ""
    return name or _kernel_function(timeline.names[timeline.kernels.name[row]])


def _kernel_function(name: str) -> str:
    """``ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)`` -> ``AllReduce``."""
    parts = re.split(r"[(<]", name, maxsplit=1)[0].split("_")
    return parts[1] if len(parts) > 1 and parts[0].lower().startswith("nccl") else parts[0]


class _Compared(NamedTuple):
    """Figures of one kind, without rates, and what those need.

    ``columns``: matching rows of each member; ``None`` where the transfer is unknown. ``factor``:
    of ``_BUS_FACTORS``.
    """

    figures: CollectiveFigures
    members: list[int]
    columns: list[NDArray[np.int64]] | None
    factor: float | None


def _figures(
    kind: _Kind,
    per_rank: Sequence[dict[_Kind, _Calls]],
    timelines: Sequence[Timeline],
    durations: Sequence[NDArray[np.int64]],
    found: Sequence[Exposure],
    ranks: Sequence[int | None],
    all_present: bool,
    matched: Sequence[Matched],
    clocks: Sequence[int] | None,
) -> _Compared:
    """What is known of one kind but its rates, for which all kinds are needed."""
    members, columns, complete = _members(kind, per_rank, all_present)
    rows = [[row for step in per_rank[i][kind].values() for row in step] for i in members]
    if clocks is not None and len({clocks[i] for i in members}) > 1:
        columns = None
    wait = skew = transfer = last = None
    if columns is not None:
        table = np.array([durations[i][of] for i, of in zip(members, columns)], np.float64)
        beyond, came_last = table - table.min(axis=0), np.array(members)[table.argmin(axis=0)]
        if clocks is not None:
            starts = np.array(
                [timelines[i].kernels.start_ns[of] for i, of in zip(members, columns)], np.float64
            )
            # Who has all it needs before the last has come (the root of a broadcast) waits less.
            beyond = np.minimum(starts.max(axis=0) - starts, table)
            came_last = np.array(members)[starts.argmax(axis=0)]
            table = table - beyond
        for i, of, waited in zip(members, columns, beyond):
            matched[i].wait_ns[of] = waited
            matched[i].last[of] = came_last
            matched[i].complete[of] = complete
        wait = tuple(beyond.mean(axis=1).tolist())
        skew = float(beyond.max(axis=0).mean())
        # In most calls, and after all others: equal ones have none.
        alone = ((beyond == beyond.min(axis=0)).sum(axis=0) == 1) & (beyond.max(axis=0) > 0)
        often = np.bincount(came_last[alone], minlength=1)
        if often.max() > 0.5 * len(came_last):
            last = ranks[int(often.argmax())]
        transfer = float(table.min(axis=0).mean()) if complete else None
    moved = np.concatenate([timelines[i].kernels.bytes_moved[of] for i, of in zip(members, rows)])
    size_bytes = round(float(moved.mean())) if (moved >= 0).all() else None
    size = kind.group_size or max([len(ranks), *(t.world_size or 0 for t in timelines)])
    factor = next((f(size) for pattern, f in _BUS_FACTORS if pattern.search(kind.name)), None)
    exposed, overlapped = _exposure(rows, [found[i] for i in members])
    figures = CollectiveFigures(
        name=kind.name,
        bytes_moved=size_bytes,
        group_size=kind.group_size or None,
        ranks=tuple(ranks[i] for i in members),
        calls=float(np.mean([len(of) / len(timelines[i].steps) for i, of in zip(members, rows)])),
        matched=columns is not None,
        complete=complete,
        duration_ns=tuple(float(durations[i][of].mean()) for i, of in zip(members, rows)),
        wait_ns=wait,
        skew_ns=skew,
        transfer_ns=transfer,
        exposed_ns=exposed,
        overlapped_ns=overlapped,
        last_rank=last,
        algorithm_bytes_per_s=None,
        bus_bytes_per_s=None,
    )
    return _Compared(figures, members, columns if complete else None, factor)


def _with_rates(
    kinds: Sequence[_Compared], timelines: Sequence[Timeline], matched: Sequence[Matched]
) -> list[CollectiveFigures]:
    """The figures of all kinds with their rates, of those whose transfer is known."""
    on_same: dict[_Links, list[_Compared]] = defaultdict(list)
    for kind in kinds:
        on_same[_links_of(kind)].append(kind)
    shares = {
        links: [_shared_transfers(place, beside, timelines[i], matched[i])
                for place, i in enumerate(links.members)]
        for links, beside in on_same.items()
    }  # fmt: skip
    figures = []
    for kind in kinds:
        found, rate = kind.figures, None
        if kind.columns is not None and found.transfer_ns and found.bytes_moved is not None:
            own = zip(shares[_links_of(kind)], kind.columns)
            shortest_ns = float(np.min([mine[rows] for mine, rows in own], axis=0).mean())
            rate = found.bytes_moved / shortest_ns * 1e9 if shortest_ns else None
        bus = None if rate is None or kind.factor is None else rate * kind.factor
        figures.append(replace(found, algorithm_bytes_per_s=rate, bus_bytes_per_s=bus))
    return figures


class _Links(NamedTuple):
    """What collectives go over: between which ranks, and of a pair in which direction."""

    members: tuple[int, ...]
    direction: str


def _links_of(kind: _Compared) -> _Links:
    one_way = OF_PAIR.fullmatch(kind.figures.name)
    return _Links(tuple(kind.members), kind.figures.name if one_way else "")


def _shared_transfers(
    place: int, beside: Sequence[_Compared], timeline: Timeline, matched: Matched
) -> Float64:
    """Of each kernel of a member (``place`` in its kinds) its part of the time of transfers, in ns.

    ``beside``: the kinds over the same links; of those without a size nothing is known. Rows are
    those of ``Timeline.kernels``.
    """
    kernels = timeline.kernels
    shares = np.zeros(len(kernels))
    known = [
        (kind, kind.columns[place])
        for kind in beside
        if kind.columns is not None and kind.figures.bytes_moved is not None
    ]
    if known:
        rows = np.concatenate([of for _, of in known])
        crosses = np.concatenate(
            [np.full(len(of), kind.factor or 1.0) * kernels.bytes_moved[of] for kind, of in known]
        )
        # Of times since 1970 a float64 has no single nanoseconds.
        origin = kernels.start_ns[rows].min()
        end = kernels.end_ns[rows] - origin
        # All that is waited for lies before the transfer.
        start = np.minimum(kernels.start_ns[rows] - origin + matched.wait_ns[rows], end)
        shares[rows] = shared_ns(start, end, crosses)
    return shares


def _comparable(kind: _Kind, members: int, given: int, all_present: bool) -> tuple[bool, bool]:
    """Whether the members' calls can be one collective, and whether they are all members."""
    if _POINT_TO_POINT.search(kind.name) and not OF_PAIR.fullmatch(kind.name):
        return False, False
    if kind.group_size:
        # More members than the group has: several groups under one name.
        return 2 <= members <= kind.group_size, members == kind.group_size
    return members == given >= 2, all_present and members == given


def _columns(calls: Sequence[_Calls]) -> list[NDArray[np.int64]] | None:
    """Per member the rows of matching calls, aligned; ``None`` if no step has any."""
    columns: list[list[int]] = [[] for _ in calls]
    for step in calls[0]:
        of_step = [member.get(step, []) for member in calls]
        if len({len(rows) for rows in of_step}) == 1:
            for column, rows in zip(columns, of_step):
                column += rows
    return [np.array(column, np.int64) for column in columns] if columns[0] else None


def _exposure(
    rows: Sequence[Sequence[int]], found: Sequence[Exposure]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    exposed, overlapped = [], []
    for of_rank, shares in zip(rows, found):
        own = float(shares.owned_ns[list(of_rank)].sum())
        exposed.append(own)
        overlapped.append(max(0.0, float(shares.duration_ns[list(of_rank)].sum()) - own))
    return tuple(exposed), tuple(overlapped)
