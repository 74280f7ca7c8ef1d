"""Sleep in Python's time: how much of it by a thread's counters, at which lines by samples.

Samples are of a few steps and say where; how long, the thread's own counters of the steps that
nothing was attached to say: what is left of a step beside its processor time and its time on a run
queue. A machine that others use too makes a thread wait for a processor, which is no sleep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gobrrr.attribution.cpu.network import NETWORK_LEAF
from gobrrr.attribution.lane import LEAF_OF_OWNER, LOADING, PYTHON
from gobrrr.attribution.leaves import IdleGap
from gobrrr.live.measurements import Measurements

# What no op, wait or loader explains, and in which the thread did nothing at all.
ASLEEP = "overhead.asleep"
# Queues and clocks are read beside the step: less than this share of it is no sleep.
LEAST_SLEEP = 0.01
_PYTHON_LEAF = LEAF_OF_OWNER[PYTHON]


def with_sleep_apart(
    leaves_ns: Mapping[str, float],
    idle: Sequence[IdleGap],
    measured: Measurements,
    threads: int | None,
) -> tuple[dict[str, float], tuple[IdleGap, ...]]:
    """Leaves and gaps of a step with sleep apart from Python.

    Args:
        leaves_ns: sleep is still in ``overhead.python``.
        idle: those gaps that samples saw the thread sleep in are ``overhead.asleep``.
        measured: its steps; where they were not sampled, sleep has no lines of its own.
        threads: how many compute.
    """
    total_ns, python_ns = sum(leaves_ns.values()), leaves_ns[_PYTHON_LEAF]
    seen_ns = sum(gap.duration_ns for gap in idle if gap.leaf == ASLEEP)
    awake_ns = sum(gap.duration_ns for gap in idle if gap.leaf == _PYTHON_LEAF)
    slept_ns = seen_ns
    if measured.slept_ns:
        # Waiting for others and for data have names of their own.
        waited_ns = leaves_ns[NETWORK_LEAF] + leaves_ns[LEAF_OF_OWNER[LOADING]]
        most_ns = max(0.0, _slept_ns(measured) - waited_ns - measured.stolen * total_ns)
        # Among several threads this one may have slept in an operator, for the others; beside
        # waits that were profiled in other steps a difference says little.
        only_in_python = threads == 1 and (waited_ns == 0 or not measured.sampled)
        slept_ns = most_ns if only_in_python else min(seen_ns, most_ns)
    slept_ns = min(slept_ns, python_ns, seen_ns + awake_ns)
    if slept_ns < LEAST_SLEEP * total_ns:
        slept_ns = 0.0
    # What part of the gaps seen asleep was sleep, and what part of those that were not.
    kept = min(1.0, slept_ns / seen_ns) if seen_ns else 0.0
    added = max(0.0, slept_ns - seen_ns) / awake_ns if awake_ns else 0.0
    gaps: list[IdleGap] = []
    for gap in idle:
        share = {ASLEEP: kept, _PYTHON_LEAF: added}.get(gap.leaf)
        if share is None:
            gaps.append(gap)
            continue
        for leaf, part in ((_PYTHON_LEAF, 1.0 - share), (ASLEEP, share)):
            if part > 0:
                gaps.append(replace(gap, leaf=leaf, duration_ns=gap.duration_ns * part))
    leaves = {
        **leaves_ns,
        _PYTHON_LEAF: python_ns - slept_ns,
        ASLEEP: leaves_ns[ASLEEP] + slept_ns,
    }
    return leaves, tuple(gaps)


def _slept_ns(measured: Measurements) -> float:
    """Of a usual step, as its time is told."""
    slept = np.mean(measured.slept_ns) if measured.kind.varying else np.median(measured.slept_ns)
    return float(slept)
