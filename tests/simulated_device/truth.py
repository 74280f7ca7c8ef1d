"""Where a step's time truly went, from what machine and host did while nothing was profiled.

Device busy: the leaf of the kernel. Device idle: what the program's thread was doing until the
launch call of the next kernel had returned; from there on the launch's, or, where it had returned
before the kernel before it was over, that of the gap between queued kernels.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise

from simulated_device.machine import Machine, Ran

Leaf = Callable[[Ran], str]
FIXED, LAUNCH, GAP = "overhead.kernel_fixed_cost", "overhead.launch", "overhead.kernel_gap"


def true_leaves(machine: Machine, leaf_of: Leaf) -> tuple[float, dict[str, float]]:
    """The median timed step, in ns, and its time by leaf.

    Where profiles leave the host slower, of the steps before the first of them: the program's own.
    """
    blocks = machine.timed
    if machine.hostile.residue != 1.0:
        blocks = [block for block in blocks if block[-1] < machine.profiles[0]]
    windows = sorted(
        (pair for block in blocks for pair in pairwise(block)),
        key=lambda pair: pair[1] - pair[0],
    )
    middle = windows[(len(windows) - 1) // 2 : len(windows) // 2 + 1]
    total: dict[str, float] = defaultdict(float)
    for start, end in middle:
        for leaf, ns in _of_window(machine, leaf_of, start, end).items():
            total[leaf] += ns / len(middle)
    return sum(end - start for start, end in middle) / len(middle), dict(total)


def _of_window(machine: Machine, leaf_of: Leaf, start: int, end: int) -> dict[str, float]:
    ran = [one for one in machine.ran if one.end_ns > start and one.start_ns < end]
    after = [one for one in machine.ran if one.start_ns >= end]
    starting = sorted([*ran, *after[:1]], key=lambda one: one.start_ns)
    starts = [one.start_ns for one in starting]
    ends = sorted(one.end_ns for one in machine.ran if one.end_ns <= end)
    begun = [one.start_ns for one in machine.did]
    low, high = bisect_right(begun, start) - 1, bisect_left(begun, end)
    did = machine.did[max(low, 0) : high]
    cuts = {start, end}
    cuts |= {time for one in ran for time in (one.start_ns, one.end_ns)}
    cuts |= {time for one in did for time in (one.start_ns, one.end_ns)}
    cuts |= {one.called_ns for one in starting}
    borders = sorted(cut for cut in cuts if start <= cut <= end)
    fixed_ns = machine.vendor.fixed_ns
    total: dict[str, float] = defaultdict(float)
    for left, right in pairwise(borders):
        owners = [one for one in ran if one.start_ns <= left and one.end_ns >= right]
        if owners:
            # Copies count where nothing else runs.
            owner = min(owners, key=lambda one: one.cat != "kernel")
            length_ns = owner.end_ns - owner.start_ns
            fixed = min(fixed_ns / length_ns, 1.0) if owner.cat == "kernel" else 0.0
            total[FIXED] += (right - left) * fixed
            total[leaf_of(owner)] += (right - left) * (1 - fixed)
            continue
        at = bisect_left(starts, right)
        following = starting[at] if at < len(starting) else None
        if following is not None and following.called_ns <= left:
            before = bisect_right(ends, left) - 1
            queued = before >= 0 and following.called_ns <= ends[before]
            total[GAP if queued else LAUNCH] += right - left
            continue
        at = bisect_right(begun, left) - 1
        busy = at >= 0 and machine.did[at].end_ns >= right
        total[machine.did[at].leaf if busy else "overhead.unexplained"] += right - left
    return total
