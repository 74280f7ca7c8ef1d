"""Steps told apart by what they do, and what stands between them.

Work and time of a figure have to come from the same steps. A step is what nearly every window
does; what only some windows do beside it is no part of it. Windows that do the same thing on
tensors of other shapes are of another kind, unless no shape is the usual one: then steps vary, and
a figure is a mean over all of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median

from gobrrr.timeline.step_kinds import (
    PLAIN,
    CallKey,
    StepWindow,
)

# What this share of windows do is the step; the others do something else.
NEARLY_ALL = 0.9
# A shape that fewer steps than these have is not the usual one.
USUAL = 0.5
# A gap that is longer than usual by this share of a step, and by this much, is not the step's.
LONG_GAP, LONG_GAP_NS = 1.0, 1_000_000
# Steps whose events differ in number by more than this do different things.
UNEVEN = 1.02
_MOST_PATTERNS = 50
BETWEEN = "between steps"

Alike = tuple[int, bool, bool]
# The user's lines that were seen between two moments, and how often each.
LinesOf = Callable[[int, int], Counter[str]]


@dataclass(frozen=True, slots=True)
class Extra:
    """A stretch of a window that is not its step's: what it is called, where it comes from."""

    name: str
    time_ns: float
    source: str
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Sorted:
    """Windows by what they do.

    Attributes:
        windows: as they were given.
        own: which of them contain the step.
        other: the name of each other window's kind (``""``: it contains the step).
        extras: per window, what it does beside the step.
        varying: the steps differ in size.
        pattern: the calls of a step; of one that varies, runs of calls as one.
        shape: the usual step's calls; empty where steps vary.
    """

    windows: tuple[StepWindow, ...]
    own: tuple[bool, ...]
    other: tuple[str, ...]
    extras: tuple[tuple[Extra, ...], ...]
    varying: bool
    pattern: tuple[Alike, ...]
    shape: tuple[CallKey, ...]

    def step_ns(self, index: int) -> float:
        """The part of a window that is its step."""
        return self.windows[index].length_ns - sum(e.time_ns for e in self.extras[index])

    def pure(self, index: int) -> bool:
        """Whether a window is a step and nothing else."""
        return self.own[index] and not self.extras[index]


def runs_of(window: StepWindow) -> tuple[Alike, ...]:
    """The calls of a window, those that are repeated at once as one."""
    return tuple(alike for alike, _ in groupby(call.key.alike for call in window.calls))


def sort_windows(windows: Sequence[StepWindow]) -> Sorted:
    """Finds out what the step is, which windows contain it, and what else they contain."""
    windows = tuple(windows)
    runs = [runs_of(window) for window in windows]
    pattern = _step_of(runs)
    exact = [i for i, found in enumerate(runs) if found == pattern]
    shapes = Counter(windows[i].keys for i in exact)
    shape, often = max(shapes.items(), key=lambda item: item[1]) if shapes else ((), 0)
    varying = bool(pattern) and often < USUAL * max(1, len(exact))
    if varying:
        shape = ()
    own, chosen = [], []
    for window in windows:
        places = _places(window, shape, pattern, varying)
        own.append(places is not None)
        chosen.append(places if places is not None else ())
    typical = _usual_gaps(windows, own, chosen)
    # Of steps that differ in size a long gap says nothing.
    usual_ns = _usual_step_ns(windows, own, chosen)
    least = float("inf") if varying else max(LONG_GAP * usual_ns, LONG_GAP_NS)
    extras = tuple(
        tuple(_extras(window, places, typical, least, pattern)) if contains else ()
        for window, contains, places in zip(windows, own, chosen)
    )
    other = tuple(
        "" if contains else _name_of_other(window, shape, pattern)
        for window, contains in zip(windows, own)
    )
    return Sorted(windows, tuple(own), other, extras, varying, pattern, shape)


def _step_of(runs: Sequence[tuple[Alike, ...]]) -> tuple[Alike, ...]:
    """The longest pattern that nearly all windows contain, else the most common one."""
    counts = Counter(runs)
    if not counts:
        return ()
    candidates = [pattern for pattern, _ in counts.most_common(_MOST_PATTERNS)]
    wanted = NEARLY_ALL * len(runs)
    common = [
        pattern
        for pattern in candidates
        if sum(n for found, n in counts.items() if _places_in(found, pattern) is not None) >= wanted
    ]
    if common:
        return max(common, key=lambda pattern: (len(pattern), counts[pattern]))
    return candidates[0]


def _places_in(whole: Sequence[object], part: Sequence[object]) -> tuple[int, ...] | None:
    """Where ``part`` is in ``whole`` in that order, as late as possible; ``None``: it is not.

    As late as possible, because a step is what comes before a window's end.
    """
    places = []
    at = len(whole)
    for wanted in reversed(part):
        at -= 1
        while at >= 0 and whole[at] != wanted:
            at -= 1
        if at < 0:
            return None
        places.append(at)
    return tuple(reversed(places))


def _places(
    window: StepWindow, shape: tuple[CallKey, ...], pattern: tuple[Alike, ...], varying: bool
) -> tuple[int, ...] | None:
    """Which calls of a window are its step's; ``None``: it does not contain the step."""
    if not varying:
        return _places_in(window.keys, shape)
    alike = [call.key.alike for call in window.calls]
    starts = [i for i, key in enumerate(alike) if i == 0 or alike[i - 1] != key]
    chosen = _places_in([alike[i] for i in starts], pattern)
    if chosen is None:
        return None
    ends = [*starts[1:], len(alike)]
    return tuple(i for run in chosen for i in range(starts[run], ends[run]))


def _gaps(window: StepWindow, places: Sequence[int]) -> list[tuple[int, int]]:
    """Stretches before, between and after the step's calls."""
    edges = [window.begin_ns]
    for place in places:
        edges += [window.calls[place].begin_ns, window.calls[place].end_ns]
    edges.append(window.end_ns)
    return [(edges[i], edges[i + 1]) for i in range(0, len(edges), 2)]


def _slot(index: int, count: int) -> int:
    """Gaps before the step, after it, and between its calls, which may differ in number."""
    return 0 if index == 0 else 2 if index == count - 1 else 1


def _plain_and_pure(
    windows: Sequence[StepWindow], own: Sequence[bool], chosen: Sequence[tuple[int, ...]]
) -> list[int]:
    found = [
        i
        for i, window in enumerate(windows)
        if own[i] and len(chosen[i]) == len(window.calls) and window.phase == PLAIN
    ]
    return found or [i for i in range(len(windows)) if own[i]]


def _usual_gaps(
    windows: Sequence[StepWindow], own: Sequence[bool], chosen: Sequence[tuple[int, ...]]
) -> dict[int, float]:
    lengths: dict[int, list[int]] = defaultdict(list)
    for i in _plain_and_pure(windows, own, chosen):
        gaps = _gaps(windows[i], chosen[i])
        for at, (begin, end) in enumerate(gaps):
            lengths[_slot(at, len(gaps))].append(end - begin)
    return {slot: float(median(values)) for slot, values in lengths.items()}


def _usual_step_ns(
    windows: Sequence[StepWindow], own: Sequence[bool], chosen: Sequence[tuple[int, ...]]
) -> float:
    lengths = [windows[i].length_ns for i in _plain_and_pure(windows, own, chosen)]
    return float(median(lengths)) if lengths else 0.0


def _extras(
    window: StepWindow,
    places: Sequence[int],
    typical: dict[int, float],
    least_ns: float,
    pattern: Sequence[Alike],
) -> list[Extra]:
    """What of a window's gaps is more than a step's own; unnamed from ``least_ns`` on."""
    found = []
    gaps = _gaps(window, places)
    if window.attached:
        # What gobrrr does makes them longer.
        least_ns = float("inf")
    # Without a call nothing tells a long step from a step with something beside it, save a mark.
    for at, (begin, end) in enumerate(gaps):
        others = [
            call
            for place, call in enumerate(window.calls)
            if place not in places and begin <= call.begin_ns and call.end_ns <= end
        ]
        marks = [mark for mark in window.marks if begin <= mark.begin_ns and mark.end_ns <= end]
        excess = end - begin - typical.get(_slot(at, len(gaps)), 0.0)
        if excess <= 0 or (not others and not marks and (excess < least_ns or not places)):
            continue
        marked_ns = float(sum(mark.end_ns - mark.begin_ns for mark in marks))
        for mark in marks:
            length_ns = mark.end_ns - mark.begin_ns
            scale = min(1.0, excess / marked_ns) if marked_ns else 0.0
            found.append(
                Extra(mark.name, length_ns * scale, mark.source, mark.begin_ns, mark.end_ns)
            )
        left = excess - marked_ns
        if others and left > 0:
            name = name_of_calls([call.key for call in others], pattern)
            found.append(Extra(name, left, others[0].key.source, begin, end))
        elif left >= least_ns and places:
            found.append(Extra(BETWEEN, left, "", begin, end))
    return found


def _evaluates(keys: Sequence[CallKey], pattern: Sequence[Alike]) -> bool:
    """Whether calls beside a step evaluate what it trains; beside inference nothing does."""
    trains = not pattern or any(gradients for _, _, gradients in pattern)
    return trains and not any(key.gradients for key in keys)


def name_of_calls(keys: Sequence[CallKey], pattern: Sequence[Alike]) -> str:
    """What calls beside a step of that pattern are for."""
    if _evaluates(keys, pattern):
        return "evaluation"
    names = sorted({key.module for key in keys})
    return f"calls of {', '.join(names[:2])}"


def _name_of_other(
    window: StepWindow, shape: tuple[CallKey, ...], pattern: tuple[Alike, ...]
) -> str:
    """What a window without the usual step is: the same on other shapes, or something else."""
    keys = window.keys
    if is_one_token(shape) and keys and keys[-1].tokens and keys[-1].shapes[0][-1:] > (1,):
        return "prefill"
    if keys and pattern and _places_in(runs_of(window), pattern) is not None:
        shapes = " ".join("x".join(map(str, s)) for s in keys[-1].shapes[:1])
        return f"steps of other shapes ({shapes})" if len(keys) == len(shape) else "longer steps"
    if keys and _evaluates(keys, pattern):
        return "evaluation"
    return "steps of another kind"


def is_one_token(shape: Sequence[CallKey]) -> bool:
    """Whether a step is one call of a model that is given one token of each sequence."""
    if len(shape) != 1 or not shape[0].tokens or shape[0].gradients:
        return False
    first = shape[0].shapes[0]
    return len(first) == 2 and first[1] == 1


def differ(steps: Sequence[Sized]) -> bool:
    """Whether steps of the same shapes do different things: by the number of their events."""
    lengths = [len(step) for step in steps]
    return bool(lengths) and max(lengths) > UNEVEN * min(lengths)


def shares_by_size(sizes: Sequence[float], wanted: Sequence[float]) -> list[float]:
    """How much each of some recorded steps counts in a mean over the steps of other sizes.

    Work between two recorded sizes is taken to lie on the line through them, and beyond the
    smallest and the largest on the nearest line, so that each share is linear in what it stands
    for. Steps of the same size share alike. The shares sum to 1.

    >>> shares_by_size([10, 20], [10, 20, 15, 15])
    [0.5, 0.5]
    """
    places: dict[float, list[int]] = defaultdict(list)
    for i, size in enumerate(sizes):
        places[size].append(i)
    nodes = sorted(places)
    weight = dict.fromkeys(nodes, 0.0)
    for size in wanted:
        if len(nodes) == 1:
            weight[nodes[0]] += 1.0
            continue
        low, high = next(((a, b) for a, b in pairwise(nodes) if size <= b), (nodes[-2], nodes[-1]))
        part = (size - low) / (high - low)
        weight[low] += 1.0 - part
        weight[high] += part
    total = max(1, len(wanted))
    return [weight[size] / len(places[size]) / total for size in sizes]
