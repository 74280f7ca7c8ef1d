"""Collectives of a CPU program: which ran, what each moved, and when a thread slept for one.

The backend (gloo) runs a collective in a thread of its own, and torch's profiler records it there.
What waits for it is a range (``collective_waits``), or C++ that no event names: at the end of a
backward DDP sleeps until its buckets have arrived.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gobrrr.live.profiles.collective_waits import BACKWARD_RANGE, WAIT_RANGE
from gobrrr.live.profiles.profile import RawEvents
from gobrrr.observe.group_names import DEFAULT_GROUP, group_title
from gobrrr.observe.joined_group import joined_distributed
from gobrrr.timeline import intervals
from gobrrr.timeline.data import Collective, Int64
from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
from gobrrr.work.formulas.communication import COLLECTIVE_NAMES, WAITS

# What backends call a collective while it runs, in their own threads.
_BACKENDS = ("gloo:", "mpi:", "ucc:")
# What they call a send or a receive, in the thread that asks for it.
_EXCHANGES = ("gloo:send", "gloo:recv")
# Operators of which the argument behind the group is the other rank, by its number in the group.
SENDS, RECEIVES = "c10d::send", "c10d::recv_"
EXCHANGES = (SENDS, RECEIVES, "c10d::recv_any_source_")
# What autograd's engine does for one node.
_NODE = "autograd::engine::evaluate_function"
# Names of host spans that wait for other ranks.
WAITING = (WAIT_RANGE, *WAITS)


def running(step: RawEvents) -> Int64:
    """Rows of the collectives that ran during the step, in order, in threads beside it."""
    return _named(step, _BACKENDS, step.thread != 0)


def exchanged(step: RawEvents) -> Int64:
    """Rows of the sends and receives of the step's own thread, in order.

    Each begins inside its call, and ends where it has been waited for.
    """
    return _named(step, _EXCHANGES, step.thread == 0)


def _named(step: RawEvents, beginnings: tuple[str, ...], where: NDArray[np.bool_]) -> Int64:
    named = np.array([name.startswith(beginnings) for name in step.names], bool)
    if not named.any():
        return np.empty(0, np.int64)
    return np.flatnonzero(named[step.name] & where).astype(np.int64)


def with_waits(step: RawEvents) -> RawEvents:
    """The step without the ranges around its backward, and with spans where it slept there.

    After the last node of a backward its thread runs the callbacks that were left for the end.
    Where no event of it lies there while a collective runs, it waits for that collective.
    """
    backward = np.array([name == BACKWARD_RANGE for name in step.names], bool)
    if not backward.any():
        return step
    ranges = np.flatnonzero(backward[step.name])
    keep = np.ones(len(step), bool)
    keep[ranges] = False
    waits = _waits_at_the_end(step, ranges, keep)
    names = (*step.names, WAIT_RANGE)
    start = np.append(step.start_ns[keep], [a for a, _ in waits]).astype(np.int64)
    end = np.append(step.end_ns[keep], [b for _, b in waits]).astype(np.int64)
    order = np.lexsort((-(end - start), start))
    extra = len(waits)
    return replace(
        step,
        names=names,
        start_ns=start[order],
        end_ns=end[order],
        name=np.append(step.name[keep], np.full(extra, len(names) - 1))[order].astype(np.int32),
        thread=np.append(step.thread[keep], np.zeros(extra))[order].astype(np.int32),
        annotation=np.append(step.annotation[keep], np.zeros(extra, bool))[order],
    )


def _waits_at_the_end(
    step: RawEvents, ranges: Int64, keep: NDArray[np.bool_]
) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    rows = running(step)
    if not len(rows):
        return found
    own = keep & (step.thread == 0)
    busy = intervals.union(step.start_ns[own], step.end_ns[own])
    sent = intervals.union(step.start_ns[rows], step.end_ns[rows])
    node = own & np.array([name.startswith(_NODE) for name in step.names], bool)[step.name]
    for row in ranges.tolist():
        begin, stop = int(step.start_ns[row]), int(step.end_ns[row])
        inside = node & (step.start_ns >= begin) & (step.end_ns <= stop)
        if not inside.any():
            continue
        free = intervals.complement(busy, int(step.end_ns[inside].max()), stop)
        pieces = intervals.intersect_rows(free.start, free.end, sent)
        found += zip(pieces.start.tolist(), pieces.end.tolist())
    return found


def issued_by(step: RawEvents, rows: Int64, calls: Int64) -> Int64:
    """For each running collective the row of the call that asked for it (-1: none in this step).

    A backend takes what it is given in order: each belongs to the first call before it that has
    none yet. ``calls`` are rows of such calls, in order.
    """
    found = np.full(len(rows), -1, np.int64)
    following = 0
    for i, row in enumerate(rows.tolist()):
        if following < len(calls) and step.start_ns[calls[following]] <= step.start_ns[row]:
            found[i] = calls[following]
            following += 1
    return found


def collective_of(
    call: OpCall, groups: Mapping[str, Sequence[int]], own_rank: int | None = None
) -> Collective:
    """What a call asks of the other ranks; ``groups`` are the ranks of each process group.

    A send and the receive of the same have one name on both ranks, by which they match.
    """
    sizes = [(_bytes_of(arg), arg) for arg in (*call.args, call.outputs or ())]
    known = [size for size, _ in sizes if size]
    named = [arg for arg in call.args if isinstance(arg, str) and arg in groups]
    name = COLLECTIVE_NAMES.get(call.name, call.name.partition("::")[2])
    group = named[0] if named else None
    pair = _pair(call, groups[group], own_rank) if group is not None else None
    if pair is not None:
        return Collective(
            name=f"send from rank {pair[0]} to {pair[1]}",
            bytes_in=max(known, default=None),
            dtype=next((tensor.dtype for tensor in call.tensors), ""),
            group_size=2,
            group=group,
        )
    return Collective(
        name=name,
        bytes_in=max(known, default=None) if name != "barrier" else 0,
        dtype=next((tensor.dtype for tensor in call.tensors), ""),
        group_size=len(groups[group]) if group is not None else None,
        group=group,
    )


def _pair(call: OpCall, ranks: Sequence[int], own_rank: int | None) -> tuple[int, int] | None:
    """From which rank a call sends or receives to which; ``None`` where it tells only one."""
    # (tensors, group, rank in the group, tag)
    other = call.args[2] if call.name in (SENDS, RECEIVES) and len(call.args) > 2 else None
    if own_rank is None or not isinstance(other, int) or not 0 <= other < len(ranks):
        return None
    return (own_rank, ranks[other]) if call.name == SENDS else (ranks[other], own_rank)


def _bytes_of(arg: Arg) -> int:
    if isinstance(arg, TensorSpec):
        return arg.unique_bytes or 0
    if isinstance(arg, tuple):
        return sum(_bytes_of(item) for item in arg)
    return 0


def unknown_collective(name: str) -> Collective:
    """One that no recorded call asked for: what the backend calls it is all there is."""
    return Collective(name=name.partition(":")[2] or name)


def process_groups() -> dict[str, tuple[int, ...]]:
    """The ranks of each process group of this process, by the name that collectives give.

    A process that never loaded ``torch.distributed`` has none.
    """
    return {name: ranks for name, ranks, _ in _groups()}


def own_rank() -> int | None:
    """Which rank this process is; ``None`` without a process group."""
    distributed = joined_distributed()
    return None if distributed is None else int(distributed.get_rank())


def group_titles() -> dict[str, str]:
    """What each process group is called in a report, by the name that collectives give."""
    return {name: group_title(name, ranks, described) for name, ranks, described in _groups()}


def _groups() -> list[tuple[str, tuple[int, ...], str]]:
    """Of each process group the name, the ranks and its description."""
    distributed = joined_distributed()
    if distributed is None:
        return []
    world = distributed.distributed_c10d._world
    found = []
    for group, name in dict(world.pg_names).items():
        ranks = world.pg_group_ranks.get(group)
        if ranks:
            # Versions of torch before 2.3 have no descriptions.
            described = str(getattr(group, "group_desc", ""))
            if group is world.default_pg:
                described = DEFAULT_GROUP
            found.append((str(name), tuple(sorted(ranks)), described))
    return found
