"""Of all that was measured, what belongs to the steps that the figures are of.

Work and time of every figure come from the same kind of steps, or from means over enough steps of
different sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean, median

import numpy as np

from gobrrr.live.bare_steps import BareBlock
from gobrrr.live.kinds.after_profile import slower_since_profiled
from gobrrr.live.kinds.growing_steps import TimedStep, growing_notice
from gobrrr.live.kinds.page_faults import block_faults
from gobrrr.live.kinds.repeated_ops import with_varying
from gobrrr.live.kinds.step_kinds import (
    Sorted,
    differ,
    is_one_token,
    shares_by_size,
    sort_windows,
)
from gobrrr.live.kinds.wall_time import wall_time, with_slow_steps
from gobrrr.live.measurements import Measurements, RecordedStep, StepKind
from gobrrr.timeline.data import Timeline
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.step_kinds import SeenSteps

# Of fewer steps than these with nothing beside them, the others' own part is taken too.
ENOUGH_PURE = 6
# A device's block begins with an empty queue: its first step is not told if it has so many more.
ENOUGH_LATER = 6
# Watched steps that are so much longer than bare ones.
WORTH_SAYING = 1.05
# ... and by what at the most, for each call and the step's end.
MOST_WATCHING_NS = 500_000


def same_steps(measured: Measurements) -> Measurements:
    """The measurements of the usual steps, what they are, and what else the wall time goes to."""
    found = with_slow_steps(
        sort_windows(measured.windows), measured.lines_between, taken_away=measured.mostly_waited
    )
    if measured.device_timeline is not None and not found.varying:
        measured = _of_full_queue(measured)
    places = [*measured.plain_windows[0], *measured.plain_windows[1]]
    device_ns = {
        window: length_ns
        for windows, lengths in zip(measured.plain_windows, measured.plain_ns)
        for window, length_ns in zip(windows, lengths)
    }
    watched = any(found.own[i] for i in places)
    if not watched:
        if not measured.bare:
            return measured
        # It ended in their midst.
        places = [i for i, window in enumerate(found.windows) if not window.attached]
        lengths_ns = [found.windows[i].length_ns for i in places]
        measured = replace(measured, plain_windows=[places, []], plain_ns=[lengths_ns, []])
    plain_ns, plain_windows = _plain(measured, found)
    bare, notices = _bare(measured, found), measured.notices
    if measured.device_timeline is not None and not watched:
        # Of its steps windows of the host do not tell the length.
        bare = measured.bare
    # Of a device the steps' buffers are its own.
    faults = None
    if measured.device_timeline is None and not found.varying:
        faults = block_faults(*_blocks(found, plain_windows, bare))
    growing = "" if found.varying else growing_notice(_timed(measured, plain_windows, bare))
    # Steps that grow have other faults later on by themselves.
    moved = faults is not None and faults.moved and not growing
    notices = [*notices, *filter(None, [growing])]
    if moved and 0 in bare:
        bare = {0: bare[0]}
    elif moved:
        bare, plain_ns, plain_windows = {}, [plain_ns[0], []], [plain_windows[0], []]
    if measured.device_timeline is not None and not found.varying:
        both = [block.lengths_ns for block in bare.values()]
        since = slower_since_profiled(both if len(both) == 2 else plain_ns)
        if since:
            bare = {which: block for which, block in bare.items() if which == 0}
            if plain_windows[0]:
                plain_ns, plain_windows = [plain_ns[0], []], [plain_windows[0], []]
        notices = [*notices, *since]
    timed = [*plain_windows[0], *plain_windows[1]]
    counts = [found.windows[i].page_faults for i in timed if found.pure(i)]
    if bare:
        if not moved:
            notices = [*notices, *_watching(plain_ns[1], bare)]
        counts = [number for block in bare.values() for number in block.faults]
        plain_ns = [[ns for block in bare.values() for ns in block.lengths_ns], []]
    if faults is not None and moved:
        notices = [*notices, faults.notice(len(plain_ns[0]))]
    profiled = [
        (raw, window)
        for raw, window in zip(measured.profiled, measured.profiled_windows)
        if found.pure(window)
    ] or list(zip(measured.profiled, measured.profiled_windows))
    steps = [raw for raw, _ in profiled]
    uneven = differ(steps)
    recorded, others = _recorded(measured, found, timed, found.varying)
    timeline = measured.device_timeline
    window_counts: tuple[float, ...] = ()
    if timeline is not None:
        timeline, windows = _of_device(timeline, measured, found)
        if found.varying and windows:
            window_counts = _window_counts(windows, timed, found)
    kind = StepKind(
        name=_kind_name(found),
        varying=found.varying or uneven,
        tokens=found.shape[0].shapes[0][0] if is_one_token(found.shape) else None,
        others=others,
        wall=wall_time(
            found,
            measured.lines_between,
            measured.after_last,
            None if timeline is None else device_ns,
        ),
        # Of bare steps the others, which are watched, say nothing.
        seen=seen_steps(found) if timeline is None and not bare else None,
        page_faults=_faults(counts, found.varying),
        fault_ns=None if faults is None else faults.fault_ns,
        window_counts=window_counts,
        bare=bool(bare),
    )
    sampled = [
        pair
        for pair, window in zip(measured.sampled, measured.sampled_windows)
        if found.pure(window)
    ]
    return replace(
        measured,
        plain_ns=plain_ns,
        plain_windows=plain_windows,
        bare=bare,
        profiled=steps,
        profiled_windows=[window for _, window in profiled],
        recorded=recorded,
        sampled=sampled or measured.sampled,
        device_timeline=timeline,
        notices=notices,
        kind=kind,
    )


def _of_full_queue(measured: Measurements) -> Measurements:
    """The same without the first step of each block of a device, where enough others are left."""
    firsts = [int(len(block) > ENOUGH_LATER) for block in measured.plain_ns]
    return replace(
        measured,
        plain_ns=[block[first:] for block, first in zip(measured.plain_ns, firsts)],
        plain_windows=[block[first:] for block, first in zip(measured.plain_windows, firsts)],
    )


def seen_steps(found: Sorted) -> SeenSteps | None:
    """Every step that was seen, whatever was done with it; ``None``: none without a profiler.

    Of means over all of them the number times the mean is the time that they took together.
    """
    alone: list[float] = []
    attached: list[float] = []
    for i, window in enumerate(found.windows):
        if found.own[i]:
            lengths = attached if window.attached else alone
            lengths.append(found.step_ns(i) * 1e-9)
    if not alone:
        return None
    return SeenSteps(
        count=len(alone),
        mean_s=mean(alone),
        median_s=median(alone),
        attached=len(attached),
        attached_mean_s=mean(attached) if attached else None,
    )


def _plain(measured: Measurements, found: Sorted) -> tuple[list[list[int]], list[list[int]]]:
    """Unprofiled lengths of the usual steps, in both blocks, and which windows these are."""
    blocks = list(zip(measured.plain_windows, measured.plain_ns))
    pure = sum(found.pure(i) for windows, _ in blocks for i in windows)
    own = sum(found.own[i] for windows, _ in blocks for i in windows)
    strict = pure >= min(ENOUGH_PURE, own)
    lengths: list[list[int]] = []
    chosen: list[list[int]] = []
    for windows, lengths_ns in blocks:
        rows = [
            (i, length_ns)
            for i, length_ns in zip(windows, lengths_ns)
            if (found.pure(i) if strict else found.own[i])
        ]
        chosen.append([i for i, _ in rows])
        lengths.append(
            [
                round(max(1.0, length_ns - sum(extra.time_ns for extra in found.extras[i])))
                for i, length_ns in rows
            ]
        )
    return lengths, chosen


def _recorded(
    measured: Measurements, found: Sorted, timed: Sequence[int], varying: bool
) -> tuple[list[StepOp] | None, tuple[tuple[list[StepOp], float], ...]]:
    """The recorded step that the figures are laid out by, and how much each one counts.

    Of steps that do different things it is the one that does most; how often an op runs comes from
    all profiled steps.
    """
    usual = [step for step in measured.recorded_steps if found.pure(step.window)]
    if not usual:
        return measured.recorded, ()
    middle = mean(found.windows[i].size for i in timed)

    def size(step: RecordedStep) -> int:
        return found.windows[step.window].size

    # The one with the most ops; of several, the one of the most usual size.
    first = max(usual, key=lambda step: (len(step.ops), -abs(size(step) - middle)))
    others = [step for step in usual if step is not first]
    ops = with_varying(first, others)
    if not varying or not others:
        return ops, ()
    usual = [replace(first, ops=ops), *others]
    shares = shares_by_size([size(step) for step in usual], [found.windows[i].size for i in timed])
    return ops, tuple((step.ops, share) for step, share in zip(usual, shares))


def _faults(counts: Sequence[int], varying: bool) -> float | None:
    """Page faults of a timed step: a recorder changes what the allocator gives back and takes."""
    if not counts:
        return None
    return mean(counts) if varying else float(median(counts))


def _bare(measured: Measurements, found: Sorted) -> dict[int, BareBlock]:
    """Bare steps by block, if the steps around are nothing but steps of one kind; else none."""
    if not found.alike:
        return {}
    later = zip(measured.plain_windows[1], measured.plain_ns[1])
    watched_ns = [length_ns for i, length_ns in later if found.pure(i)]
    if 1 in measured.bare and measured.bare[1].lengths_ns and watched_ns:
        calls = 1 + len(found.shape)
        more_ns = median(watched_ns) - median(measured.bare[1].lengths_ns)
        if more_ns > calls * MOST_WATCHING_NS:
            # No hook costs that: the machine was another one meanwhile.
            return {}
    return {which: block for which, block in sorted(measured.bare.items()) if block.lengths_ns}


def _watching(watched_ns: Sequence[int], bare: Mapping[int, BareBlock]) -> list[str]:
    """What it costs a step that its calls are watched, where that is worth a word."""
    if not watched_ns or 1 not in bare:
        return []
    watched, alone = median(watched_ns), median(bare[1].lengths_ns)
    if watched < WORTH_SAYING * alone:
        return []
    return [
        f"Watching what a step calls makes it {watched / alone - 1:.0%} longer; the step told is "
        "of those at whose ends gobrrr read a clock and nothing else."
    ]


def _blocks(
    found: Sorted, plain_windows: Sequence[Sequence[int]], bare: Mapping[int, BareBlock]
) -> list[list[tuple[int, int]]]:
    """Page faults and lengths of steps before anything was attached, and of those after."""
    blocks = [
        [(found.windows[i].page_faults, found.windows[i].length_ns) for i in windows
         if found.pure(i)]
        for windows in plain_windows
    ]  # fmt: skip
    for which, block in bare.items():
        blocks[which] = list(zip(block.faults, block.lengths_ns))
    return blocks


def _timed(
    measured: Measurements, plain_windows: Sequence[Sequence[int]], bare: Mapping[int, BareBlock]
) -> list[list[TimedStep]]:
    """The timed steps of both blocks; of a device processor time says nothing."""
    efforts = measured.efforts if measured.device_timeline is None else {}
    blocks: list[list[TimedStep]] = []
    # Bare steps, which have no windows.
    before = 0
    for which, (windows, lengths_ns) in enumerate(zip(measured.plain_windows, measured.plain_ns)):
        timed, block = set(plain_windows[which]), bare.get(which)
        if block is None:
            steps = [
                TimedStep(i + before, ns, efforts[i].ran_ns if i in efforts else None,
                          measured.windows[i].page_faults)
                for i, ns in zip(windows, lengths_ns) if i in timed
            ]  # fmt: skip
        else:
            first = before + (windows[-1] + 1 if windows else len(measured.windows))
            rows = enumerate(zip(block.lengths_ns, block.faults), first)
            steps = [TimedStep(i, ns, None, faults) for i, (ns, faults) in rows]
            before += len(steps)
        blocks.append(steps)
    return blocks


def _kind_name(found: Sorted) -> str:
    if not is_one_token(found.shape):
        return ""
    key = found.shape[0]
    sequences = key.shapes[0][0]
    each = "one token" if sequences == 1 else f"one token of each of {sequences} sequences"
    return f"decode step (one call of {key.module}: {each})"


def _of_device(
    timeline: Timeline, measured: Measurements, found: Sorted
) -> tuple[Timeline, list[int]]:
    """The timeline with the windows of the usual steps alone, and which these are.

    They are unknown (empty) where the timeline has others than were profiled.
    """
    windows = measured.profiled_windows
    wanted = np.array([found.pure(i) for i in windows], bool)
    if len(windows) != len(timeline.steps):
        return timeline, []
    if wanted.all() or not wanted.any():
        return timeline, windows
    chosen = replace(
        timeline,
        steps=timeline.steps[wanted],
        step_names=tuple(name for name, keep in zip(timeline.step_names, wanted) if keep),
    )
    return chosen, [window for window, keep in zip(windows, wanted) if keep]


def _window_counts(
    windows: Sequence[int], timed: Sequence[int], found: Sorted
) -> tuple[float, ...]:
    """How much each profiled step counts in a mean over the sizes of the timed ones."""
    sizes = [float(found.windows[i].size) for i in windows]
    shares = shares_by_size(sizes, [float(found.windows[i].size) for i in timed])
    # Beyond the profiled sizes the line that work lies on may count a step less than nothing.
    kept = [max(0.0, share) for share in shares]
    total = sum(kept)
    return tuple(share * len(kept) / total for share in kept) if total > 0 else ()
