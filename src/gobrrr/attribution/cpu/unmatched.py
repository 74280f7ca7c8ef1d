"""Ops that the recorded step did not run: whose work they have, where that can be told."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gobrrr.timeline.align import recorded_as
from gobrrr.work.estimate import Work

Float64 = NDArray[np.float64]

# Shares of a mean over steps add up to whole calls but for this.
ROUNDING = 1e-9


def calls_of_alike(
    names: Sequence[str],
    works: Sequence[Work | None],
    ran: Float64,
    other_count: dict[str, float],
) -> Float64:
    """How often a step runs each op, with the unmatched ones that can only be its like.

    Those are of a name whose recorded ops all have the same work and are most of it in a step: a
    step of more rounds. Otherwise an unmatched op may be of any size.

    Args:
        names: of the recorded ops.
        works: of one call of each.
        ran: how often a profiled step ran each.
        other_count: how many unmatched ops a step runs, by name.
    """
    calls: Float64 = np.array(ran, np.float64)
    if not other_count:
        return calls
    rows: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        rows.setdefault(recorded_as(name), []).append(i)
    counts: dict[str, float] = {}
    for name, count in other_count.items():
        counts[recorded_as(name)] = counts.get(recorded_as(name), 0.0) + count
    for name, count in counts.items():
        at = rows.get(name, [])
        if not at or works[at[0]] is None or any(works[i] != works[at[0]] for i in at):
            continue
        if float(ran[at].sum()) > count:
            calls[at] *= 1.0 + count / float(ran[at].sum())
    return calls


def shared_by_name(
    names: Sequence[str],
    kernel_ns: Float64,
    ran: Float64,
    calls: Float64,
    other_ns: dict[str, float],
    other_count: dict[str, float],
) -> tuple[Float64, dict[str, float], dict[str, float]]:
    """Gives the time of unmatched ops to the ops of their name that count their work.

    The recorded step may lack rounds of a longer one. Then the mean work counts an op more often
    (``calls``) than profiled steps were seen to run it (``ran``): the calls that are missing are
    among the unmatched ones of its name, as many of them as are missing. The others are in no
    work that is known, and stay apart.

    Args:
        names: of the recorded ops.
        kernel_ns: time per step of each.
        ran: how often a profiled step ran each.
        calls: how often the mean step does, by the work that is counted.
        other_ns: time per step of unmatched ops, by name.
        other_count: how many of these a step runs.

    Returns:
        ``kernel_ns``, ``other_ns`` and ``other_count`` after that: the sum of all time is the same.
    """
    missing = np.where(ran > 0, np.maximum(calls - ran, 0.0), 0.0)
    # A call that was not matched takes as long as those that were.
    expected_ns = missing * np.divide(kernel_ns, ran, out=np.zeros_like(kernel_ns), where=ran > 0)
    rows: dict[str, list[int]] = {}
    for i in np.flatnonzero(expected_ns > 0).tolist():
        rows.setdefault(recorded_as(names[i]), []).append(i)
    kernel_ns, left_ns, left_count = kernel_ns.copy(), dict(other_ns), dict(other_count)
    for name, time_ns in other_ns.items():
        at, count = rows.get(recorded_as(name), []), other_count[name]
        wanted = float(missing[at].sum())
        if not at or not wanted or count <= 0:
            continue
        # In-place forms of an op come one after another, each for what is still missing.
        part = 1.0 if wanted > count * (1 - ROUNDING) else wanted / count
        kernel_ns[at] += time_ns * part * expected_ns[at] / expected_ns[at].sum()
        missing[at] *= max(0.0, 1.0 - count / wanted)
        left_ns[name], left_count[name] = time_ns * (1.0 - part), count * (1.0 - part)
        if part == 1.0:
            del left_ns[name], left_count[name]
    return kernel_ns, left_ns, left_count
