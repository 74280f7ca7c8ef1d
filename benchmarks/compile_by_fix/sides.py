"""Several processes of each side, in turns: what the sides differ by, and what processes differ by.

The sides run the same compiled code: a step enters as many Python functions on both, Dynamo has one
entry for it, and the settings of the process are the same. What differed when each side was one
process was the process. One and the same differs from itself by up to 2 from round to round on a
shared machine, in phases that outlast a round, and the one that compiled first also keeps the
compiler's threads and objects. So each side has several processes that start in pairs, and in each
round all of them run on the same processor, which changes from round to round.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.fixes.again import Process

PROCESSES, ROUNDS, TURN_S = 3, 16, 0.04
DRAWS = 1000
# Label of a side -> its processes -> seconds per step in each round.
Seconds = Mapping[str, Sequence[Sequence[float]]]


def in_turns(
    running: Mapping[str, Sequence[Process]], rounds: int = ROUNDS
) -> dict[str, list[list[float]]]:
    """Seconds per step of each process in each round; within a round the order is random."""
    processes = [(label, p) for label, of_label in running.items() for p in of_label]
    steps = [max(1, round(TURN_S / max(_shortest(p), 1e-7))) for _, p in processes]
    seconds: list[list[float]] = [[] for _ in processes]
    drawn = random.Random(0)
    for number in range(rounds):
        for place in drawn.sample(range(len(processes)), len(processes)):
            process = processes[place][1]
            _stay_on_one_processor(process.child.pid, number)
            seconds[place].append(process.turn(steps[place]))
    made: dict[str, list[list[float]]] = {label: [] for label in running}
    for (label, _), of_process in zip(processes, seconds, strict=True):
        made[label].append(of_process)
    return made


def _shortest(process: Process) -> float:
    return min(process.turn(1) for _ in range(5))


def _stay_on_one_processor(pid: int, number: int) -> None:
    """The thread that runs the steps moves to the processor of this round; Linux only."""
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(pid, {allowed[number % len(allowed)]})


def compared(seconds: Seconds, before: str, after: str) -> dict[str, float]:
    """How many times as fast ``after`` is, with a 95 % interval over processes and rounds.

    A process counts with the median of its rounds, each in times of what all processes took in that
    round; a side with the median of its processes.
    """
    together = {before: seconds[before], after: seconds[after]}
    count = len(seconds[before][0])
    rounds = [median(p[r] for side in together.values() for p in side) for r in range(count)]
    relative = {
        label: [[s / whole for s, whole in zip(p, rounds, strict=True)] for p in side]
        for label, side in together.items()
    }
    drawn = random.Random(0)
    ratios = []
    for _ in range(DRAWS):
        chosen = drawn.choices(range(count), k=count)
        sides = {label: drawn.choices(side, k=len(side)) for label, side in relative.items()}
        ratios.append(_side(sides[before], chosen) / _side(sides[after], chosen))
    ratios.sort()
    return {
        "median": _side(relative[before], range(count)) / _side(relative[after], range(count)),
        "low": ratios[round(0.025 * DRAWS)],
        "high": ratios[round(0.975 * DRAWS) - 1],
    }


def _side(processes: Sequence[Sequence[float]], rounds: Sequence[int]) -> float:
    return median(median(p[r] for r in rounds) for p in processes)


def slowest_over_fastest(processes: Sequence[Sequence[float]]) -> float:
    """What the processes of one side differ by: medians of their rounds."""
    medians = [median(p) for p in processes]
    return max(medians) / min(medians)


def measured(seconds: Seconds) -> dict[str, Any]:
    """Of one program: the speedup of each side, the sides against each other, the spread."""
    if "original" not in seconds:
        return {"ratios": {}}
    sides = [label for label in seconds if label != "original"]
    made: dict[str, Any] = {
        "original_s": median(median(p) for p in seconds["original"]),
        "ratios": {label: compared(seconds, "original", label) for label in sides},
        "processes_differ_by": {
            label: slowest_over_fastest(seconds[label]) for label in sides
        },
        "seconds": seconds,
    }  # fmt: skip
    if {"by fix", "by hand"} <= set(sides):
        made["by_fix_over_by_hand"] = compared(seconds, "by hand", "by fix")
    return made
