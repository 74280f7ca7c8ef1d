"""Sixty architectures diagnosed live, each in its own process, beside a clock of its own.

    PYTHONPATH=. python benchmarks/breadth/live.py --out FILE [--only PATTERN ...]

Which sixty: ``live_architectures``. Every second one trains. Two clocks of our own, both
``time.perf_counter``: around blocks of steps before the diagnosis and after it (where those two
disagree the machine was not quiet, and the row is marked so), and around each of the very calls
that gobrrr was timing. The first needs a quiet machine; the second says on any machine whether the
step that is reported is the step that ran.
"""

from __future__ import annotations

import fnmatch
import functools
import json
import os
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from benchmarks.breadth import asking, run, watching
from benchmarks.breadth.architectures import live_architectures
from benchmarks.breadth.case import Case

import gobrrr
from benchmarks import command

LIMIT_S = 180.0
WITHIN = 0.03
# What two halves of the same clock may differ by on a quiet machine.
QUIET = 0.015
_BLOCKS, _BLOCK_S, _WARM_UP = 12, 0.1, 3
Record = dict[str, Any]


def _blocks(step: Callable[[], Any]) -> list[float]:
    """Seconds a step in each of several blocks of steps, warm."""
    for _ in range(_WARM_UP):
        step()
    started = time.perf_counter()
    step()
    count = max(1, int(_BLOCK_S / (time.perf_counter() - started)))
    found = []
    for _ in range(_BLOCKS):
        started = time.perf_counter()
        for _ in range(count):
            step()
        found.append((time.perf_counter() - started) / count)
    return found


class _SameSteps:
    """A clock round each call of a step, with what gobrrr said that it was doing at the time."""

    def __init__(self, step: Callable[[], Any]) -> None:
        self._step, self._phase = step, ""
        self.calls_s: dict[str, list[float]] = {}

    def hear(self, phase: str, done: int, wanted: int) -> None:
        self._phase = phase

    def __call__(self) -> Any:
        started = time.perf_counter()
        result = self._step()
        self.calls_s.setdefault(self._phase, []).append(time.perf_counter() - started)
        return result


def _diagnose(work: gobrrr.Workload) -> Record:
    before = _blocks(work.step)
    same = _SameSteps(work.step)
    # A workload is frozen; its method is hidden behind the clock for as long as it is diagnosed.
    object.__setattr__(work, "step", same)
    diagnosis = gobrrr.diagnose(work, progress=same.hear)
    object.__delattr__(work, "step")
    after = _blocks(work.step)
    clock_s = median(before + after)
    same_s = median(same.calls_s["timing"])
    drift = abs(median(after) / median(before) - 1)
    return {
        "outcome": "diagnosed",
        **asking.describe_diagnosis(diagnosis),
        "clock_s": clock_s,
        "error": round(diagnosis.step_s / clock_s - 1, 4),
        "clock_drift": round(drift, 4),
        "same_steps_s": same_s,
        "same_steps": len(same.calls_s["timing"]),
        "same_steps_error": round(diagnosis.step_s / same_s - 1, 4),
        "quiet": drift <= QUIET,
        "mfu": diagnosis.mfu,
    }


def _work(case: Case, trains: bool, stages: tuple[str, ...], say: watching.Say) -> None:
    torch.manual_seed(0)
    (stage,) = stages
    say(stage, None)
    try:
        work = asking.workload_of(case.build(), trains, set_mode=True)
        assert work is not None
        work.step()
    except Exception as error:
        sentence = asking.without_paths(f"{type(error).__name__}: {error}", 200)
        say(stage, {"outcome": "fails in PyTorch", "sentence": sentence})
        return
    started = time.perf_counter()
    try:
        record = _diagnose(work)
    except Exception as error:
        record = asking.describe_error(error)
    say(stage, {**record, "seconds": round(time.perf_counter() - started, 1)})


def measure(case: Case, trains: bool) -> Record:
    """One architecture's row."""
    stage = "training" if trains else "forward"
    work = functools.partial(_work, case, trains)
    record = watching.watch(work, (stage,), limit_s=LIMIT_S)[stage]
    record = {name: value for name, value in record.items() if value not in ([], None)}
    within = record["outcome"] == "diagnosed" and abs(record["error"]) <= WITHIN
    return {"name": case.name, "step": stage, "within": within, **record}


def summarise(rows: list[Record]) -> Record:
    """Counts; how far the steps were from the clock."""
    counted = [row for row in rows if row["outcome"] != "fails in PyTorch"]
    diagnosed = [row for row in counted if row["outcome"] == "diagnosed"]
    errors = sorted(abs(row["error"]) for row in diagnosed)
    return {
        "asked": len(rows),
        "counted": len(counted),
        "alive": len(diagnosed),
        "invariants_hold": sum("broken" not in row for row in diagnosed),
        "within_3_percent": sum(row["within"] for row in diagnosed),
        "clock_not_quiet": sum(not row["quiet"] for row in diagnosed),
        "within_3_percent_of_same_steps": sum(
            abs(row["same_steps_error"]) <= WITHIN for row in diagnosed
        ),
        "median_error": median(errors) if errors else None,
        "largest_error": errors[-1] if errors else None,
    }


def main() -> int:
    options = command.parser(__doc__)
    options.add_argument("--only", nargs="+", metavar="PATTERN", help="names, with * and ?")
    arguments = options.parse_args()
    cases = [(case, number % 2 == 1) for number, case in enumerate(live_architectures())]
    if arguments.quick:
        cases = cases[1:2]
    if arguments.only:
        cases = [
            (case, trains)
            for case, trains in cases
            if any(fnmatch.fnmatch(case.name, pattern) for pattern in arguments.only)
        ]
    record = command.Record("breadth_live", arguments, "transformers", "diffusers")
    run.import_what_children_need()
    # The machine's ceilings are measured once, by a process that ends before the first case.
    os.waitpid(_measure_ceilings(), 0)
    rows: list[Record] = []
    for number, (case, trains) in enumerate(cases, start=1):
        rows.append(measure(case, trains))
        print(f"{number}/{len(cases)} {json.dumps(rows[-1])}", flush=True)
        record.write({"summary": summarise(rows), "cases": rows})
    print(json.dumps(summarise(rows), indent=1))
    counted = [row for row in rows if row["outcome"] != "fails in PyTorch"]
    if arguments.quick:  # its figures mean nothing, and so no comparison of them
        return int(any(row["outcome"] != "diagnosed" for row in counted))
    return int(any(not row["within"] for row in counted))


def _measure_ceilings() -> int:
    child = os.fork()
    if child == 0:
        gobrrr.ceilings_for_this_machine()
        os._exit(0)
    return child


if __name__ == "__main__":
    sys.exit(main())
