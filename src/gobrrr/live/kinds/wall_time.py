"""What the wall time of a program's loop goes to: its steps, and what stands beside them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import mean, median_low

from gobrrr.live.kinds.step_forms import Alike, runs_of
from gobrrr.live.kinds.step_kinds import (
    BETWEEN,
    Extra,
    LinesOf,
    Sorted,
    name_of_calls,
)
from gobrrr.timeline.step_kinds import PLAIN, WARM, StepWindow, WallPart, WallTime

# What takes that many times as long as it does at other times compiles or loads something.
FIRST_TIME = 10
# Periods that differ by no more than this share are one.
UNEVEN_PERIODS = 0.1


def wall_time(
    found: Sorted,
    lines_of: LinesOf = lambda *_: Counter(),
    after_last: StepWindow | None = None,
    device_ns: Mapping[int, int] | None = None,
) -> WallTime | None:
    """What the wall time goes to; ``None`` where nothing but steps was seen too rarely to tell.

    How often something happens is counted over all windows, those that gobrrr disturbed too, or
    told by its period where it has one: one begins to look where a period begins, and leaves within
    one. How long it takes comes from undisturbed ones, without those that compile. ``found`` is as
    ``with_slow_steps`` gives it, where lines are looked at. ``after_last``: what the program did
    between its last step and its end; without it the last of its evaluations would be missing.
    ``device_ns``: how long timed windows are on a device that the host runs ahead of.
    """
    plain = [i for i, window in enumerate(found.windows) if window.phase == PLAIN]
    usual = _lines_of_steps(found, lines_of)
    if device_ns is None:
        own = [found.step_ns(i) for i in plain if found.own[i]]
    else:
        own = [float(length_ns) for i, length_ns in device_ns.items() if found.pure(i)]
        found = _on_device(found, device_ns, mean(own)) if own else found
    if not own:
        return None
    count = len(found.windows)
    steps_ns = mean(own) * sum(found.own) / count
    lengths: dict[str, list[float]] = defaultdict(list)
    disturbed: dict[str, list[float]] = defaultdict(list)
    sources: dict[str, Counter[str]] = defaultdict(Counter)
    places: dict[str, list[int]] = defaultdict(list)
    beside = list(zip(found.windows, found.extras))
    for i, window in enumerate(found.windows):
        if not found.own[i]:
            at = window.calls[-1].key.source if window.calls else ""
            whole = window.length_ns, at, window.begin_ns, window.end_ns
            beside[i] = window, (Extra(found.other[i], *whole),)
    if after_last is not None:
        beside.append((after_last, _after_last(after_last, found.pattern)))
    for at_window, (window, stretches) in enumerate(beside):
        for extra in stretches:
            places[extra.name].append(at_window)
            source = extra.source or _line_of(lines_of(extra.begin_ns, extra.end_ns), usual)
            usual_time = window.phase == PLAIN and not window.compiles
            (lengths if usual_time else disturbed)[extra.name].append(extra.time_ns)
            if source:
                sources[extra.name][source] += 1
    each = {name: _typical(lengths[name] or disturbed[name]) for name in {*lengths, *disturbed}}
    # Nothing tells a gap in a step that gobrrr itself has made longer.
    plainly = sum(not window.attached for window in found.windows)
    plainly = plainly if device_ns is None else len(device_ns)
    seen = {name: plainly if name == BETWEEN else count for name in each}
    times = {name: _times(places[name], count, seen[name]) for name in each}
    total = steps_ns + sum(each[name] * times[name] / count for name in each)
    parts = [
        WallPart(
            name=name,
            time_s=each[name] * 1e-9,
            share=each[name] * times[name] / count / total,
            per_step=times[name] / max(1, sum(found.own)),
            source=sources[name].most_common(1)[0][0] if sources[name] else None,
        )
        for name in each
    ]
    parts.sort(key=lambda part: -part.share)
    return WallTime(steps_ns / total, tuple(parts), count)


def _on_device(found: Sorted, device_ns: Mapping[int, int], step_ns: float) -> Sorted:
    """The same, where what a timed window holds beside its step is as long as on the device.

    A host that is ahead does other things for nothing, or waits in them for steps that it issued
    before. Windows of the device, from event to event, tile the wall time as well: what one has
    beyond a step is what stands beside it. A gap without a name in another window is nothing: the
    first steps load what a device runs.
    """
    windows = list(found.windows)
    extras = [tuple(extra for extra in some if extra.name != BETWEEN) for some in found.extras]
    for i, window in enumerate(windows):
        if i in device_ns:
            extras[i] = found.extras[i]
        elif window.phase == PLAIN:
            # The first of a block: the device may have waited for it.
            windows[i] = replace(window, phase=WARM)
    for i, length_ns in device_ns.items():
        if not found.own[i]:
            windows[i] = replace(windows[i], begin_ns=windows[i].end_ns - length_ns)
        elif extras[i]:
            beside_ns = sum(extra.time_ns for extra in extras[i]) or 1.0
            scale = max(0.0, length_ns - step_ns) / beside_ns
            some = tuple(replace(extra, time_ns=extra.time_ns * scale) for extra in extras[i])
            extras[i] = some if scale else ()
    return replace(found, windows=tuple(windows), extras=tuple(extras))


def _after_last(window: StepWindow, pattern: tuple[Alike, ...]) -> tuple[Extra, ...]:
    """What stands after the last step; nothing where that is the beginning of another step."""
    runs = runs_of(window)
    if (runs and runs == pattern[: len(runs)]) or any(key.gradients for key in window.keys):
        return ()
    found = [
        Extra(mark.name, mark.end_ns - mark.begin_ns, mark.source, mark.begin_ns, mark.end_ns)
        for mark in window.marks
    ]
    left = window.length_ns - sum(extra.time_ns for extra in found)
    if window.calls and left > 0:
        name, at = name_of_calls(window.keys, pattern), window.calls[0].key.source
        found.append(Extra(name, left, at, window.begin_ns, window.end_ns))
    return tuple(found)


def with_slow_steps(found: Sorted, lines_of: LinesOf, *, taken_away: bool = False) -> Sorted:
    """The same, where a step that was slow at its own lines is a step and nothing else.

    ``taken_away``: the machine did other things for most of the time, in the midst of any line.
    """
    if taken_away:
        slow = {extra for extras in found.extras for extra in extras if extra.name == BETWEEN}
    else:
        slow = _merely_slow(found, lines_of, _lines_of_steps(found, lines_of))
    extras = (tuple(e for e in extras if e not in slow) for extras in found.extras)
    return replace(found, extras=tuple(extras)) if slow else found


def _times(places: Sequence[int], count: int, seen: int) -> float:
    """How often something comes in that many windows, by its period if it has one.

    Args:
        places: the windows that it is in.
        count: how many windows there are.
        seen: in how many of them it would have been noticed.
    """
    at_large = len(places) * count / max(1, seen)
    windows = sorted(set(places))
    gaps = [after - before for before, after in pairwise(windows)]
    if not gaps:
        return at_large
    period = mean(gaps)
    regular = max(gaps) - min(gaps) <= max(1.0, UNEVEN_PERIODS * period)
    throughout = windows[0] <= period + 1 and count - windows[-1] <= period + 1
    if not (regular and throughout):
        return at_large
    return count / period * len(places) / len(windows)


def _typical(lengths: Sequence[float]) -> float:
    """The mean without those that took so much longer than usual (of two: the shorter)."""
    return mean(length for length in lengths if length <= FIRST_TIME * median_low(lengths))


def _lines_of_steps(found: Sorted, lines_of: LinesOf) -> set[str]:
    """Lines that were seen in steps with nothing beside them."""
    return {
        line
        for i, window in enumerate(found.windows)
        if window.phase == PLAIN and found.pure(i)
        for line in lines_of(window.begin_ns, window.end_ns)
    }


def _merely_slow(found: Sorted, lines_of: LinesOf, usual: set[str]) -> set[Extra]:
    """Long gaps that nothing names, with no line in them that steps do not have too.

    A step was slow there: another program had the processor, or the machine was taken away. A gap
    too short for any line to be seen is one that the program makes if others are.
    """
    if not usual:
        # Nobody looks at lines here.
        return set()
    gaps = [extra for extras in found.extras for extra in extras if extra.name == BETWEEN]
    lines = [set(lines_of(gap.begin_ns, gap.end_ns)) for gap in gaps]
    made = any(seen - usual for seen in lines)
    return {gap for gap, seen in zip(gaps, lines) if not (seen - usual if seen else made)}


def _line_of(seen: Counter[str], usual: set[str]) -> str:
    """The line that was seen most: of those that steps do not have, if there are any."""
    own = Counter({line: often for line, often in seen.items() if line not in usual}) or seen
    return own.most_common(1)[0][0] if own else ""
