"""What a delay of the second set takes per step, by the clocks that its program keeps.

The rule is that of ``cases.py``: delays count that began in steps that gobrrr timed.
"""

from __future__ import annotations

import json
import statistics
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Spent:
    """Seconds per step: ``took_s`` is what is compared, ``wall_s`` the same delays by the wall.

    ``steps``: of how many steps. Both times are ``None`` if of none.
    """

    took_s: float | None
    wall_s: float | None
    steps: int


def spent(path: Path, fault: str, ended_s: Sequence[float], lengths_s: Sequence[float]) -> Spent:
    """What the program wrote to ``path``, over the steps that ended at ``ended_s``.

    ``lengths_s`` are how long each took; all on one clock. A program that was killed before it
    wrote has spent an unknown time.
    """
    if not path.exists() or not ended_s:
        return Spent(None, None, 0)
    said = json.loads(path.read_text())
    # (began, wall, what counts): a sleep takes no processor.
    delays = [(at, wall, wall if fault == "sleep" else ran) for at, wall, ran in said["spent"]]
    if fault == "gc":
        begin, end = min(e - s for e, s in zip(ended_s, lengths_s)), max(ended_s)
        inside = [delay for delay in delays if begin <= delay[0] < end]
        # The program is at this place once in each step.
        if not inside:
            return Spent(None, None, 0)
        took, wall = (statistics.fmean(delay[i] for delay in inside) for i in (2, 1))
        return Spent(took, wall, len(inside))
    began_s = sorted(end - length for end, length in zip(ended_s, lengths_s))
    ends_s = sorted(ended_s)
    took_s, wall_s = [0.0] * len(ends_s), [0.0] * len(ends_s)
    for at, wall, took in delays:
        step = bisect_right(began_s, at) - 1
        if step >= 0 and at < ends_s[step]:
            took_s[step] += took
            wall_s[step] += wall
    return Spent(statistics.median(took_s), statistics.median(wall_s), len(ends_s))
