"""Steps told apart by what they do, and what stands between them.

Work and time of a figure have to come from the same steps. A step is what nearly every window
does; what only some windows do beside it is no part of it. Windows that do the same thing on
tensors of other shapes are of another kind, unless no shape is the usual one: then steps vary, and
a figure is a mean over all of them. All this is linear in the calls of the windows: it is done
between the user's steps, of which one may call a module thousands of times.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from gobrrr.live.kinds.step_forms import Alike, Form, Forming
from gobrrr.timeline.step_kinds import (
    PLAIN,
    CallKey,
    Mark,
    StepWindow,
)

# What this share of windows do is the step; the others do something else.
NEARLY_ALL = 0.9
# A shape that fewer steps than these have is not the usual one.
USUAL = 0.5
# What fewer windows than these contain is not what a step does.
COMMON = 0.25
# A gap that is longer than usual by this share of a step, and by this much, is not the step's.
LONG_GAP, LONG_GAP_NS = 1.0, 1_000_000
# Steps whose events differ in number by more than this do different things.
UNEVEN = 1.02
_MOST_PATTERNS = 50
# Calls that are compared with a pattern's to find the step, each time that it is looked for.
_MOST_COMPARED = 2_000_000
BETWEEN = "between steps"

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

    @property
    def alike(self) -> bool:
        """Whether the program does nothing but steps of one kind; what came first may be another.

        Steps that something was attached to do not count; a step may be slow, as on a busy machine.
        """
        known = [i for i, window in enumerate(self.windows) if i and not window.attached]
        usual = sum(
            self.own[i] and all(extra.name == BETWEEN for extra in self.extras[i]) for i in known
        )
        return not self.varying and 1 < usual >= NEARLY_ALL * len(known)


class StepSorter:
    """Tells windows apart as they come, however often it is asked."""

    def __init__(self, windows: Sequence[StepWindow]) -> None:
        self._windows = windows
        self._forms: list[Form] = []
        self._forming = Forming()
        self._found: Sorted | None = None

    def sorted(self) -> Sorted:
        """The windows so far, told apart."""
        new = self._windows[len(self._forms) :]
        if new or self._found is None:
            self._forms += [self._forming.form_of(window) for window in new]
            self._found = _sorted(self._forms)
        return self._found


def sort_windows(windows: Sequence[StepWindow]) -> Sorted:
    """Finds out what the step is, which windows contain it, and what else they contain."""
    return StepSorter(windows).sorted()


def _sorted(forms: Sequence[Form]) -> Sorted:
    windows = tuple(form.window for form in forms)
    pattern = _step_of([(form.runs, form.window.length_ns) for form in forms])
    if pattern is None:
        return _ever_other(forms)
    exact = [form for form in forms if form.runs == pattern]
    shapes = Counter(form.keys for form in exact)
    codes, often = max(shapes.items(), key=lambda item: item[1]) if shapes else ((), 0)
    varying = bool(pattern) and often < USUAL * max(1, len(exact))
    shape: tuple[CallKey, ...] = ()
    if exact and not varying:
        shape = next(form.window.keys for form in exact if form.keys == codes)
    found = [_places(form, codes, pattern, varying) for form in forms]
    own = [places is not None for places in found]
    chosen = [places or () for places in found]
    pure = _plain_and_pure(forms, own, chosen)
    typical = _usual_gaps(forms, chosen, pure)
    # Of steps that differ in size a long gap says nothing.
    usual_ns = float(median(windows[i].length_ns for i in pure)) if pure else 0.0
    least = float("inf") if varying else max(LONG_GAP * usual_ns, LONG_GAP_NS)
    extras = tuple(
        tuple(_extras(form, places, typical, least, pattern)) if contains else ()
        for form, contains, places in zip(forms, own, chosen)
    )
    other = tuple(
        "" if contains else _name_of_other(form, shape, pattern)
        for form, contains in zip(forms, own)
    )
    return Sorted(windows, tuple(own), other, extras, varying, pattern, shape)


def _ever_other(forms: Sequence[Form]) -> Sorted:
    """Windows that call modules in ever another order: a step is all that one calls."""
    trains = [any(gradients for _, _, gradients in form.runs) for form in forms]
    own = tuple(train or not any(trains) for train in trains)
    other = tuple("" if contains else "evaluation" for contains in own)
    windows = tuple(form.window for form in forms)
    return Sorted(windows, own, other, ((),) * len(forms), True, (), ())


def _step_of(windows: Sequence[tuple[tuple[Alike, ...], int]]) -> tuple[Alike, ...] | None:
    """The longest pattern that nearly all windows contain, else the common one of most time.

    ``None``: no pattern is common.

    Args:
        windows: of each the calls, in runs, and its nanoseconds.
    """
    counts = Counter(runs for runs, _ in windows)
    if not counts:
        return ()
    # Of calls in ever another order few are tried, and of these the shortest.
    most = max(1, min(_MOST_PATTERNS, _MOST_COMPARED // max(1, sum(map(len, counts)))))
    usual = counts.most_common()
    if most < len(usual):
        usual.sort(key=lambda item: (-item[1], len(item[0])))
    candidates = [pattern for pattern, _ in usual[:most]]
    wanted = NEARLY_ALL * len(windows)
    contained = {
        pattern: sum(n for found, n in counts.items() if _places_in(found, pattern) is not None)
        for pattern in candidates
    }
    common = [pattern for pattern, often in contained.items() if often >= wanted]
    if common:
        return max(common, key=lambda pattern: (len(pattern), counts[pattern]))
    took_ns: Counter[tuple[Alike, ...]] = Counter()
    for runs, length_ns in windows:
        took_ns[runs] += length_ns
    often = [pattern for pattern in candidates if contained[pattern] >= COMMON * len(windows)]
    return max(often, key=lambda pattern: took_ns[pattern], default=None)


def _places_in(whole: Sequence[object], part: Sequence[object]) -> tuple[int, ...] | None:
    """Where ``part`` is in ``whole`` in that order, as late as possible; ``None``: it is not.

    As late as possible, because a step is what comes before a window's end.
    """
    if whole == part:
        return tuple(range(len(whole)))
    if len(part) > len(whole):
        return None
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
    form: Form, shape: tuple[int, ...], pattern: tuple[Alike, ...], varying: bool
) -> tuple[int, ...] | None:
    """Which calls of a window are its step's; ``None``: it does not contain the step."""
    if not varying:
        return _places_in(form.keys, shape)
    chosen = _places_in(form.runs, pattern)
    if chosen is None:
        return None
    return tuple(sorted(place for run in chosen for place in form.members[run]))


def _slots(count: int) -> Any:
    """Gaps before the step, after it, and between its calls, which may differ in number."""
    slots = np.ones(count, np.int64)
    slots[-1], slots[0] = 2, 0
    return slots


def _plain_and_pure(
    forms: Sequence[Form], own: Sequence[bool], chosen: Sequence[tuple[int, ...]]
) -> list[int]:
    found = [
        i
        for i, form in enumerate(forms)
        if own[i] and len(chosen[i]) == len(form.keys) and form.window.phase == PLAIN
    ]
    return found or [i for i in range(len(forms)) if own[i]]


def _usual_gaps(
    forms: Sequence[Form], chosen: Sequence[tuple[int, ...]], pure: Sequence[int]
) -> list[float]:
    """By slot, in nanoseconds; 0 where there is none."""
    if not pure:
        return [0.0, 0.0, 0.0]
    gaps = [forms[i].gaps(chosen[i]) for i in pure]
    lengths = np.concatenate([gap[:, 1] - gap[:, 0] for gap in gaps])
    slots = np.concatenate([_slots(len(gap)) for gap in gaps])
    by_slot = [lengths[slots == slot] for slot in range(3)]
    return [float(np.median(found)) if len(found) else 0.0 for found in by_slot]


def _extras(
    form: Form,
    places: Sequence[int],
    typical: Sequence[float],
    least_ns: float,
    pattern: Sequence[Alike],
) -> list[Extra]:
    """What of a window's gaps is more than a step's own; unnamed from ``least_ns`` on."""
    window = form.window
    gaps = form.gaps(places)
    if window.attached:
        # What gobrrr does makes them longer.
        least_ns = float("inf")
    marks_of: dict[int, list[Mark]] = defaultdict(list)
    for mark in window.marks:
        at = max(0, int(np.searchsorted(gaps[:, 0], mark.begin_ns, side="right")) - 1)
        if gaps[at, 0] <= mark.begin_ns and mark.end_ns <= gaps[at, 1]:
            marks_of[at].append(mark)
    edges = np.array([-1, *places, len(form.keys)])
    beside = np.diff(edges) > 1
    excesses = gaps[:, 1] - gaps[:, 0] - np.array(typical)[_slots(len(gaps))]
    # Without a call nothing tells a long step from a step with something beside it, save a mark.
    looked_at = beside | ((excesses >= least_ns) & bool(places))
    looked_at[list(marks_of)] = True
    found = []
    for at in np.flatnonzero(looked_at & (excesses > 0)).tolist():
        excess, (begin, end) = float(excesses[at]), gaps[at].tolist()
        others = window.calls[edges[at] + 1 : edges[at + 1]]
        marked_ns = float(sum(mark.end_ns - mark.begin_ns for mark in marks_of[at]))
        for mark in marks_of[at]:
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


def _name_of_other(form: Form, shape: tuple[CallKey, ...], pattern: tuple[Alike, ...]) -> str:
    """What a window without the usual step is: the same on other shapes, or something else."""
    keys = form.window.keys
    if is_one_token(shape) and keys and keys[-1].tokens and keys[-1].shapes[0][-1:] > (1,):
        return "prefill"
    if keys and pattern and _places_in(form.runs, pattern) is not None:
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
