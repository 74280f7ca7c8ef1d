"""Which op, line, module and phase each kernel of a step has, in a timeline."""

from __future__ import annotations

from collections import Counter

import numpy as np

from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.timeline.data import Phase, Timeline

# (op without its namespace, or the kernel; line, 0 for none; module; phase)
Place = tuple[str, int, str, str]


def places(timeline: Timeline) -> Counter[Place]:
    """Kernels per step, by their op or, without one, by the call that launched them.

    Every step has the same.
    """
    names, kernels, host = timeline.names, timeline.kernels, timeline.host
    found: Counter[Place] = Counter()
    for row in np.flatnonzero(kernels.start_ns < timeline.steps[-1, 1]).tolist():
        op, launch = int(kernels.op[row]), int(kernels.launch[row])
        at = op if op >= 0 else launch
        name = names[host.name[op]].rpartition("::")[2] if op >= 0 else names[kernels.name[row]]
        place = names[host.source[at]].rpartition(" in ")[0] if host.source[at] >= 0 else ":0"
        module = names[host.module[at]] if host.module[at] >= 0 else ""
        phase = Phase(int(host.phase[at])).name.lower()
        found[name, int(place.rpartition(":")[2]), module, phase] += 1
    steps = len(timeline.steps)
    assert all(count % steps == 0 for count in found.values()), (steps, found)
    return Counter({key: count // steps for key, count in found.items()})


def lines(timeline: Timeline) -> Counter[tuple[str, int]]:
    """Kernels per step by op (or kernel) and line alone."""
    found: Counter[tuple[str, int]] = Counter()
    for (name, line, _, _), count in places(timeline).items():
        found[name, line] += count
    return found


def lines_of_rows(found: Diagnosis) -> Counter[int]:
    """Calls per step by line, in the table of lines of a diagnosis."""
    counted: Counter[int] = Counter()
    for row in found.lines:
        place, _, _ = row.name.rpartition(" in ")
        counted[int(place.rpartition(":")[2] or 0)] += round(row.count)
    return counted
