"""The traces of one run, a file per rank, read in parallel and put in order."""

from __future__ import annotations

import multiprocessing
import os
import re
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from gobrrr.measure.load import usable_processors
from gobrrr.recordings.steps import MARKED
from gobrrr.recordings.traces import read_trace
from gobrrr.timeline.data import Timeline
from gobrrr.timeline.errors import InputError

_RANK_IN_NAME = re.compile(r"rank[\s_.=-]*(\d+)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")
# Clocks of the hosts of one run differ by less.
APART_FROM_S = 600.0


def read_traces(
    paths: Sequence[str | os.PathLike[str]], processes: int | None = None
) -> tuple[Timeline, ...]:
    """Reads one trace per rank of one run, sorted by rank; ``Timeline.rank`` is set on each.

    The rank is what the trace says of itself (``distributedInfo``), else what the file names say
    (``rank3``, or the one number in which they differ), else their order.

    Args:
        paths: one file per rank.
        processes: how many to read with at once; by default one per file, at most one per processor
            that this process may use.

    Raises:
        InputError: a file cannot be read, two are of one rank, or they are not of one run.
    """
    files = [Path(path) for path in paths]
    workers = min(len(files), processes or usable_processors())
    if workers > 1 and "fork" in multiprocessing.get_all_start_methods():
        # fork: a script without a main guard would run again in every spawned process. Reading
        # uses no threads, and the children only read.
        with (
            warnings.catch_warnings(),
            ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool,
        ):
            warnings.simplefilter("ignore", DeprecationWarning)
            timelines = list(pool.map(read_trace, files))
    else:
        timelines = [read_trace(path) for path in files]
    ranks = _ranks(timelines, [path.name for path in files])
    for rank in ranks:
        if ranks.count(rank) > 1:
            same = [str(path) for path, r in zip(files, ranks) if r == rank]
            raise InputError(f"{' and '.join(same)}: both are of rank {rank}; give each rank once")
    _check_same_run(timelines, ranks, files)
    ranked = [replace(timeline, rank=rank) for timeline, rank in zip(timelines, ranks)]
    return tuple(sorted(ranked, key=lambda timeline: timeline.rank or 0))


def _check_same_run(
    timelines: Sequence[Timeline], ranks: Sequence[int], files: Sequence[Path]
) -> None:
    """Raises ``InputError`` for what no two ranks of one run can differ in."""
    first, *others = zip(timelines, ranks, files)
    for timeline, rank, path in (first, *others):
        if timeline.world_size is not None and rank >= timeline.world_size:
            raise InputError(
                f"{path}: is rank {rank} by its name, but its run has {timeline.world_size} ranks; "
                "give the traces of one run"
            )
    for timeline, _, path in others:
        sizes = first[0].world_size, timeline.world_size
        if None not in sizes and sizes[0] != sizes[1]:
            raise InputError(
                f"{first[2]} is of a run with {sizes[0]} ranks, {path} of one with {sizes[1]}; "
                "give the traces of one run"
            )
        apart_s = _apart_s(first[0], timeline)
        if apart_s is not None and apart_s > APART_FROM_S:
            raise InputError(
                f"{first[2]} and {path} were recorded {apart_s / 60:,.0f} minutes apart; "
                "give the traces of one run"
            )
        if _marked(first[0]) and _marked(timeline):
            names = first[0].step_names, timeline.step_names
            if set(names[0]).isdisjoint(names[1]):
                raise InputError(
                    f"{first[2]} and {path} hold different steps ({names[0][0]} to {names[0][-1]}, "
                    f"{names[1][0]} to {names[1][-1]}); give the traces of the same steps"
                )


def _marked(timeline: Timeline) -> bool:
    return timeline.steps_how == MARKED


def _apart_s(one: Timeline, other: Timeline) -> float | None:
    """Seconds between two recordings by the wall clock (0: they overlap), where traces tell it."""
    edges: list[tuple[int, int]] = []
    for timeline in (one, other):
        base = timeline.base_ns
        if base is None or not len(timeline.steps):
            return None
        edges.append((base + int(timeline.steps[0, 0]), base + int(timeline.steps[-1, 1])))
    return max(0, edges[1][0] - edges[0][1], edges[0][0] - edges[1][1]) / 1e9


def _ranks(timelines: Sequence[Timeline], names: Sequence[str]) -> list[int]:
    recorded = [timeline.rank for timeline in timelines]
    known = [rank for rank in recorded if rank is not None]
    if len(known) == len(timelines):
        return known
    named = ranks_of_names(names)
    if named is not None:
        return named
    return list(range(len(timelines)))


def ranks_of_names(names: Sequence[str]) -> list[int] | None:
    """Ranks from file names, if each name has one and no two are equal; else ``None``."""
    marked = [_RANK_IN_NAME.search(name) for name in names]
    found = [int(match[1]) for match in marked if match is not None]
    if len(found) == len(names) and len(set(found)) == len(names):
        return found
    numbers = [_NUMBER.findall(name) for name in names]
    if len({len(row) for row in numbers}) != 1:
        return None
    columns = [[int(value) for value in column] for column in zip(*numbers)]
    varying = [column for column in columns if len(set(column)) > 1]
    if len(varying) == 1 and len(set(varying[0])) == len(names):
        return varying[0]
    return None


def missing_ranks(timelines: Sequence[Timeline]) -> tuple[int, ...]:
    """Ranks of the run that no trace was given for, as far as the traces say how many there are."""
    sizes = [timeline.world_size for timeline in timelines if timeline.world_size]
    present = {timeline.rank for timeline in timelines}
    return tuple(sorted(set(range(max(sizes, default=0))).difference(present)))
