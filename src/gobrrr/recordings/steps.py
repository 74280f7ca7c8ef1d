"""Step windows of a trace: they tile time, so that nothing is outside."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gobrrr.recordings.names import OPTIMIZER_STEP_PREFIX, STEP_PREFIX
from gobrrr.timeline.data import WHOLE_TRACE, HostKind, HostSpans, Kernels, Timeline

Int64 = NDArray[np.int64]

# A sequence must come this often, without one deviation, to pass for steps: layers repeat too, but
# what stands before the first and behind the last layer does not.
LEAST_REPEATS = 3
LONGEST_SEARCH = 200_000
# How steps were found, where the program said it.
MARKED = "marked by the profiler"


@dataclass(frozen=True)
class Steps:
    """Windows as an (n, 2) array of ns, their names, and how they were found.

    ``cut_ns``: how much of the last mark lies behind the last kernel, and so in no window.
    """

    windows: Int64
    names: tuple[str, ...]
    how: str
    cut_ns: int = 0


def find_steps(
    host: HostSpans, kernels: Kernels, names: tuple[str, ...], step_thread: int
) -> Steps:
    """The windows: marked by the profiler, else detected, else one for all.

    Each window ends where the next starts; the last ends with the last kernel (with the last
    host span where there is none); the first starts at the earlier of its mark and its first
    kernel.
    """
    marked = _marks(host, names, STEP_PREFIX)
    # Of several processes or loops in one recording, the steps of the one that is diagnosed.
    marked = marked[host.thread[marked] == step_thread]
    if len(marked):
        starts, labels = _distinct(host.start_ns[marked], [names[host.name[r]] for r in marked])
        ends = int(host.end_ns[marked].max())
        steps = _tile(starts, labels, kernels, ends, MARKED)
        return replace(steps, cut_ns=max(0, ends - int(steps.windows[-1, 1])))
    found = _after_optimizers(host, kernels, names)
    if found is None:
        found = _repetition(host, kernels, step_thread)
    if found is not None:
        return found
    return _whole(host, kernels)


def training_steps(timeline: Timeline) -> Timeline:
    """Marks of parts of a training step, such as micro-batches, joined to steps.

    Where the optimizer runs in each n-th marked window alone, a step is n of them, the one with the
    optimizer last; where it runs in some without a rule, that is said.
    """
    host, windows = timeline.host, timeline.steps
    rows = _marks(host, timeline.names, OPTIMIZER_STEP_PREFIX)
    if timeline.steps_how != MARKED or not len(rows):
        return timeline
    found = np.searchsorted(windows[:, 0], host.start_ns[rows], side="right") - 1
    ends, number = np.unique(found[found >= 0]), len(windows)
    apart = np.unique(np.diff(ends))
    regular = len(apart) == 1
    if len(ends) in (0, number) or (regular and apart[0] == 1):
        return timeline
    said = f"The optimizer ran in {len(ends)} of {number} steps marked by the profiler, so a mark "
    said += "(profiler.step()) is no training step"
    if not regular:
        notice = f"{said}: figures are of one mark."
        return replace(timeline, notices=(*timeline.notices, notice))
    length = int(apart[0])
    ends = ends[ends >= length - 1]
    first = ends - length + 1
    notice = f"{said}: figures are of steps of {length} marks."
    if length * len(ends) < number:
        notice += f" {number - length * len(ends)} marks at the ends are left out."
    names = timeline.step_names
    return replace(
        timeline,
        steps=np.stack((windows[first, 0], windows[ends, 1]), axis=1),
        step_names=tuple(f"{names[a]} to {names[b]}" for a, b in zip(first, ends)),
        notices=(*timeline.notices, notice),
    )


def _marks(host: HostSpans, names: tuple[str, ...], prefix: str) -> Int64:
    match = np.array([name.startswith(prefix) for name in names], bool)
    if not len(match):
        return np.empty(0, np.int64)
    return np.flatnonzero((host.kind == HostKind.ANNOTATION) & match[host.name])


def _distinct(starts: Int64, labels: list[str]) -> tuple[list[int], list[str]]:
    kept: dict[int, str] = {}
    for start, label in zip(starts.tolist(), labels):
        kept.setdefault(start, label)
    return list(kept), list(kept.values())


def _tile(starts: list[int], labels: list[str], kernels: Kernels, host_end: int, how: str) -> Steps:
    if len(kernels):
        first, last = int(kernels.start_ns[0]), int(kernels.end_ns.max())
        # A mark behind the last kernel opens a step that was not recorded.
        kept = [i for i, start in enumerate(starts) if start < last] or [0]
        starts, labels = [starts[i] for i in kept], [labels[i] for i in kept]
        starts[0] = min(starts[0], first)
        end = max(last, starts[-1])
    else:
        end = max(host_end, starts[-1])
    borders = np.array([*starts, end], np.int64)
    return Steps(np.stack((borders[:-1], borders[1:]), axis=1), tuple(labels), how)


def _host_range(host: HostSpans) -> tuple[int, int]:
    """First start and last end of what ran; Python frames reach back to the profiler's own."""
    rows = np.flatnonzero(host.kind != HostKind.PYTHON)
    if len(rows) == 0:
        rows = np.arange(len(host))
    return int(host.start_ns[rows].min()), int(host.end_ns[rows].max())


def _whole(host: HostSpans, kernels: Kernels) -> Steps:
    if not len(host) and not len(kernels):
        return Steps(np.zeros((1, 2), np.int64), ("whole",), WHOLE_TRACE)
    if not len(host):
        start, end = int(kernels.start_ns[0]), int(kernels.end_ns.max())
        return Steps(np.array([[start, end]], np.int64), ("whole",), WHOLE_TRACE)
    start, end = _host_range(host)
    return _tile([start], ["whole"], kernels, end, WHOLE_TRACE)


def _after_optimizers(host: HostSpans, kernels: Kernels, names: tuple[str, ...]) -> Steps | None:
    """A step ends where its optimizer ends; of several optimizers, the last of the cycle."""
    rows = _marks(host, names, OPTIMIZER_STEP_PREFIX)
    if len(rows) < 2:
        return None
    order = [names[n] for n in host.name[rows].tolist()]
    counts = Counter(order)
    rarest = min(counts.values())
    last = next(name for name in reversed(order) if counts[name] == rarest)
    ends = host.end_ns[rows][[name == last for name in order]]
    if len(ends) < 2:
        return None
    start, host_end = _host_range(host)
    borders = [min(start, int(ends[0])), *ends[:-1].tolist()]
    labels = [f"step {i}" for i in range(len(borders))]
    return _tile(borders, labels, kernels, host_end, "detected from the optimizer")


def _period(sequence: NDArray[np.int32]) -> int | None:
    """The shortest period that the whole sequence keeps, at least ``LEAST_REPEATS`` times."""
    n = len(sequence)
    if n < 2 * LEAST_REPEATS or n > LONGEST_SEARCH:
        return None
    # Only where the first elements come again can a period end.
    for period in np.flatnonzero(sequence[1 : n // LEAST_REPEATS + 1] == sequence[0]) + 1:
        if np.array_equal(sequence[period:], sequence[: n - period]):
            return int(period)
    return None


def _repetition(host: HostSpans, kernels: Kernels, step_thread: int) -> Steps | None:
    """Steps from a sequence of kernels (without any: of outermost operators) that repeats."""
    host_end = _host_range(host)[1] if len(host) else 0
    if len(kernels):
        period = _period(kernels.name)
        begins = kernels.start_ns
    else:
        rows = np.flatnonzero((host.kind == HostKind.OP) & (host.thread == step_thread))
        rows = rows[_outermost(host.start_ns[rows], host.end_ns[rows])]
        period = _period(host.name[rows])
        begins = host.start_ns[rows]
    # A single kernel over and over is a loop inside a step as likely as a step.
    if period is None or period < 2:
        return None
    borders = begins[::period][: len(begins) // period].tolist()
    if len(kernels) and kernels.launch[0] >= 0:
        borders[0] = min(borders[0], int(host.start_ns[kernels.launch[0]]))
    labels = [f"step {i}" for i in range(len(borders))]
    return _tile(borders, labels, kernels, host_end, "detected from the repeating kernels")


def _outermost(start: Int64, end: Int64) -> NDArray[np.bool_]:
    if len(start) == 0:
        return np.empty(0, bool)
    reach = np.maximum.accumulate(end)
    return np.append(True, start[1:] >= reach[:-1])
