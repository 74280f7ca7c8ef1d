"""Several ranks side by side: who waits for whom, and what the network achieves.

The kernel of a collective starts when its rank arrives and ends, on all ranks, when the data are
across. So of one collective the rank with the shortest kernel came last and waited for nobody: its
duration is the transfer, and what the others took beyond it is waiting. No clocks are compared.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.device import DeviceAttribution
from gobrrr.attribution.leaves import LEAVES, Attribution
from gobrrr.timeline import intervals
from gobrrr.timeline.data import KernelKind, Timeline

Int64 = NDArray[np.int64]

# Bytes that cross each link per byte of the message, by algorithm-independent counting: NVIDIA,
# nccl-tests, doc/PERFORMANCE.md (n ranks).
_BUS_FACTORS = (
    (re.compile(r"all_?reduce", re.IGNORECASE), lambda n: 2 * (n - 1) / n),
    (re.compile(r"all_?gather|reduce_?scatter|all_?to_?all", re.IGNORECASE), lambda n: (n - 1) / n),
    (re.compile(r"broadcast|reduce|send|recv", re.IGNORECASE), lambda n: 1.0),
)


# Below this share of a step, waiting is jitter and nobody is late.
WAIT_MATTERS_FROM = 0.01


@dataclass(frozen=True)
class CollectiveFigures:
    """One kind of collective (name, bytes) over all steps and ranks; times are means per call.

    ``transfer_ns``: the shortest duration among the ranks. ``wait_ns[i]``: what rank i took
    beyond it, waiting for a later one. ``skew_ns``: the largest of them in a call, on average.
    ``algorithm_bytes_per_s`` is bytes / transfer, ``bus_bytes_per_s`` that times the share that
    crosses a link; ``None`` where bytes are unknown. ``last_rank``
    arrived last most often. ``exposed_ns[i]`` is the time per step that rank i spent in it with no
    other kernel running, ``overlapped_ns[i]`` the rest. ``matched`` is false where no step holds
    the same calls on all ranks; durations are then each rank's own, and waiting is unknown.
    """

    name: str
    bytes_moved: int | None
    calls: int
    matched: bool
    transfer_ns: float | None
    skew_ns: float | None
    duration_ns: tuple[float, ...]
    wait_ns: tuple[float, ...]
    exposed_ns: tuple[float, ...]
    overlapped_ns: tuple[float, ...]
    last_rank: int | None
    algorithm_bytes_per_s: float | None
    bus_bytes_per_s: float | None


@dataclass(frozen=True)
class RankFigures:
    """One rank: its attribution, with waiting apart from transfer, and why it stands out."""

    rank: int
    attribution: Attribution
    wait_ns: float | None
    why: str


@dataclass(frozen=True)
class RankComparison:
    """All ranks. ``slowest`` is the rank that the others wait for; ``None`` if that is unknown."""

    ranks: tuple[RankFigures, ...]
    collectives: tuple[CollectiveFigures, ...]
    slowest: int | None
    missing: tuple[int, ...]
    notices: tuple[str, ...]


@dataclass(frozen=True)
class _Call:
    """One collective on one rank."""

    row: int
    duration_ns: int


# Step, name, bytes.
_Key = tuple[str, str, int]


def compare_ranks(
    timelines: Sequence[Timeline],
    found: Sequence[DeviceAttribution],
    missing: Sequence[int] = (),
) -> RankComparison:
    """Compares ranks of one run; ``timelines`` and ``found`` are aligned and sorted by rank.

    Waiting moves from ``memory.network`` to ``memory.network_wait`` where every rank is present
    (``missing`` is empty); with ranks missing the last to arrive may be one of them.
    """
    calls = [_calls(timeline) for timeline in timelines]
    ranks = [timeline.rank or 0 for timeline in timelines]
    waits = [np.zeros(len(timeline.kernels)) for timeline in timelines]
    groups: dict[tuple[str, int], list[_Key]] = defaultdict(list)
    for key in sorted(set().union(*calls)):
        groups[key[1:]].append(key)
    figures = []
    group_size = max([len(timelines), *(t.world_size or 0 for t in timelines)])
    for (name, size), keys in groups.items():
        figures.append(_collective(name, size, keys, calls, ranks, waits, found, group_size))
    figures.sort(key=lambda f: -sum(f.exposed_ns))
    known = any(f.matched for f in figures) and len(timelines) > 1
    notices = []
    if missing:
        listed = ", ".join(map(str, missing[:8])) + (" and more" if len(missing) > 8 else "")
        notices.append(
            f"Traces of {len(missing)} ranks are missing ({listed}): one of them may be what the "
            "others wait for, so waiting is not told from transfer."
        )
    loose = [f.name for f in figures if not f.matched]
    if loose and len(timelines) > 1:
        notices.append(
            f"{len(loose)} kinds of collectives are not on every rank the same number of times: "
            "they are not compared."
        )
    split = [
        result.attribution if missing or not known else _with_wait(timeline, result, wait)
        for timeline, result, wait in zip(timelines, found, waits)
    ]
    steps = [len(timeline.steps) for timeline in timelines]
    totals = [float(wait.sum()) / n for wait, n in zip(waits, steps)]
    longest = max((result.attribution.step_ns for result in found), default=0.0)
    late = known and max(totals) > WAIT_MATTERS_FROM * longest
    slowest = ranks[int(np.argmin(totals))] if late else None
    return RankComparison(
        ranks=tuple(
            RankFigures(
                rank, part, total if known else None, _why(i, split, totals, slowest, ranks)
            )
            for i, (rank, part, total) in enumerate(zip(ranks, split, totals))
        ),
        collectives=tuple(figures),
        slowest=slowest,
        missing=tuple(missing),
        notices=tuple(notices),
    )


def _calls(timeline: Timeline) -> dict[_Key, list[_Call]]:
    """Collectives by step, name and bytes, in order. The step keeps neighbours apart."""
    kernels = timeline.kernels
    rows = np.flatnonzero(kernels.kind == KernelKind.COLLECTIVE)
    records = timeline.extra.get("collectives", ())
    number = timeline.extra.get("collective", np.full(len(kernels), -1))
    window = np.searchsorted(timeline.steps[:, 1], kernels.start_ns[rows], side="right")
    steps = timeline.step_names
    found: dict[_Key, list[_Call]] = defaultdict(list)
    for row, step in zip(rows.tolist(), window.tolist()):
        record = int(number[row])
        if record >= 0:
            name = str(records[record]["name"]).removeprefix("nccl:")
        else:
            name = _kernel_function(timeline.names[kernels.name[row]])
        duration = int(kernels.end_ns[row] - kernels.start_ns[row])
        found[steps[step], name, int(kernels.bytes_moved[row])].append(_Call(row, duration))
    return dict(found)


def _kernel_function(name: str) -> str:
    """``ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)`` -> ``AllReduce``."""
    parts = re.split(r"[(<]", name, maxsplit=1)[0].split("_")
    return parts[1] if len(parts) > 1 and parts[0].lower().startswith("nccl") else parts[0]


def _collective(
    name: str,
    size: int,
    keys: list[_Key],
    calls: list[dict[_Key, list[_Call]]],
    ranks: list[int],
    waits: list[NDArray[np.float64]],
    found: Sequence[DeviceAttribution],
    group_size: int,
) -> CollectiveFigures:
    durations: list[list[int]] = [[] for _ in calls]
    rows: list[list[int]] = [[] for _ in calls]
    columns: list[list[_Call]] = []
    for key in keys:
        of_rank = [rank_calls.get(key, []) for rank_calls in calls]
        if len(calls) > 1 and len({len(c) for c in of_rank}) == 1:
            columns += [list(same) for same in zip(*of_rank)]
        for i, rank_calls in enumerate(of_rank):
            durations[i] += [call.duration_ns for call in rank_calls]
            rows[i] += [call.row for call in rank_calls]
    matched = bool(columns)
    exposed, overlapped = _exposure(rows, found)
    transfer = skew = None
    last = None
    wait: tuple[float, ...] = ()
    if matched:
        table = np.array([[c.duration_ns for c in column] for column in columns], np.float64).T
        shortest = table.min(axis=0)
        beyond = table - shortest
        for i in range(len(ranks)):
            waits[i][[column[i].row for column in columns]] = beyond[i]
        transfer = float(shortest.mean())
        skew = float(beyond.max(axis=0).mean())
        wait = tuple(beyond.mean(axis=1).tolist())
        last = ranks[int(np.bincount(table.argmin(axis=0), minlength=len(ranks)).argmax())]
    count = max(len(d) for d in durations)
    rate = None if transfer is None or size < 0 or transfer <= 0 else size / transfer * 1e9
    factor = next((f(group_size) for pattern, f in _BUS_FACTORS if pattern.search(name)), None)
    return CollectiveFigures(
        name=name,
        bytes_moved=size if size >= 0 else None,
        calls=count,
        matched=matched,
        transfer_ns=transfer,
        skew_ns=skew,
        duration_ns=tuple(float(np.mean(d)) if d else 0.0 for d in durations),
        wait_ns=wait,
        exposed_ns=exposed,
        overlapped_ns=overlapped,
        last_rank=last,
        algorithm_bytes_per_s=rate,
        bus_bytes_per_s=None if rate is None or factor is None else rate * factor,
    )


def _exposure(
    rows: list[list[int]], found: Sequence[DeviceAttribution]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    exposed, overlapped = [], []
    for of_rank, result in zip(rows, found):
        shares = result.attribution.kernels
        own = float(shares.owned_ns[of_rank].sum())
        exposed.append(own)
        overlapped.append(max(0.0, float(shares.duration_ns[of_rank].sum()) - own))
    return tuple(exposed), tuple(overlapped)


def _with_wait(
    timeline: Timeline, found: DeviceAttribution, wait: NDArray[np.float64]
) -> Attribution:
    """The attribution with exposed waiting apart: a collective waits first and transfers last."""
    attribution, kernels = found.attribution, timeline.kernels
    rows = found.owned.row
    until = kernels.start_ns[rows] + np.rint(wait[rows]).astype(np.int64)
    start, end = found.owned.start, np.minimum(found.owned.end, until)
    pieces, window = intervals.clip_to_windows(start, np.maximum(end, start), timeline.steps)
    waited = np.zeros(len(timeline.steps))
    np.add.at(waited, window, (pieces.end - pieces.start).astype(np.float64))
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
    means = {leaf: float(np.mean([w[leaf] for w in windows])) for leaf in LEAVES}
    result = replace(attribution, leaves_ns=means, windows=tuple(windows))
    result.check()
    return result


# What a rank can be slow in, and the words for it.
_PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("its input", ("overhead.data_loading",)),
    ("its host", ("overhead.python", "overhead.dispatch", "overhead.launch",
                  "overhead.synchronisation", "overhead.allocation", "overhead.compilation",
                  "overhead.garbage_collection")),
    ("its copies", ("memory.copies",)),
    ("its kernels", ("compute.", "memory.device", "memory.unmodelled", "unmodelled",
                     "overhead.kernel_fixed_cost")),
)  # fmt: skip


def _why(
    index: int,
    split: Sequence[Attribution],
    waits: Sequence[float],
    slowest: int | None,
    ranks: Sequence[int],
) -> str:
    """One clause on what sets the rank apart from the mean of the others."""
    if len(split) < 2:
        return ""
    if slowest is None:
        return ""
    if ranks[index] != slowest:
        own = waits[index] / 1e6
        return f"waits {own:.3f} ms per step in collectives, most of it for rank {slowest}"
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
        return "arrives last, by no part of its own step"
    return f"arrives last: {label} takes {excess[label] / 1e6:.3f} ms more than on the others"
