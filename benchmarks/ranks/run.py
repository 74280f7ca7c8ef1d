"""Is the slow rank of a job named, with the right cause and the time that it costs?

Every case of ``cases.json`` is a job of 2 or 4 ranks under ``gobrrr run --nproc-per-node`` in
which one rank has a delay of a known kind (or none has). Right is: the rank, and the part of the
step that the delay was put into; the time lost within 10 % of what the program's own clock says it
took. In a case without a fault no rank is to be named, nor in one of a late start beside who came
late. In both the program writes a file at every step of that rank (``program.py``), a small fault
of its own: it stands as it was committed, and such a case may miss by it. The *controls* are the
same cases with nothing written.

What a pause of the collector costs is by the program's mean, which holds its first step, where the
program builds what is to be collected: half a second that no later step spends. The mean without
the program's first ten steps stands beside it (``settled``).

The *second* set (``second``: a program, keys and rules of its own) stands beside the first in the
result and is never averaged with it: other models, and every rank keeps its clocks in memory and
writes them once, at its end.

    PYTHONPATH=. python benchmarks/ranks/run.py --out FILE
    PYTHONPATH=. python benchmarks/ranks/run.py --set second --out FILE     # or first
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.command import Record, parser
from benchmarks.ranks.second.truth import spent as spent_in

import gobrrr
from gobrrr.diagnosis.schema import JobRecord

HERE = Path(__file__).resolve().parent

Run = Callable[[dict[str, Any]], dict[str, Any]]

LIMIT_S = 300.0
WITHIN = 0.10
# What a cause is called in the diagnosis: (cause, phase; None: any).
CAUSES: dict[str, tuple[str, str | None]] = {
    "input": ("overhead.data_loading", None),
    "forward": ("kernels", "forward"),
    "backward": ("kernels", "backward"),
    "optimizer": ("kernels", "optimizer"),
    "python": ("overhead.python", None),
    "sleep": ("overhead.asleep", None),
    "gc": ("overhead.garbage_collection", None),
}


def run_case(case: dict[str, Any], *, writes: bool = True) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth = folder / f"rank{case['rank'] or 0}.json"
        with FirstTold(truth) as first:
            outcome, diagnosis = diagnosed(
                case, folder, HERE / "program.py", "--rank", str(case["rank"] or 0),
                *(("--truth", name) if writes else ()),
            )  # fmt: skip
        if diagnosis is None:
            return outcome
        last = told(truth)
        spent = last["spent_s"] if last else None
        assert diagnosis.job is not None
        outcome |= judged(case, diagnosis.job, spent) | {"step_s": diagnosis.step_s}
        if case["fault"] == "gc" and first.told and last:
            settled_s = mean_after(first.told, last)
            lost_s = diagnosis.job.lost_s
            known = settled_s and lost_s is not None
            error = lost_s / settled_s - 1 if known else None
            outcome |= {"settled_truth_s": settled_s, "settled_error": error}
        return outcome


def run_second_case(case: dict[str, Any]) -> dict[str, Any]:
    """A case of the second set; the rule by which it is judged stands in ``second/cases.py``."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Without a fault it is no rank's.
        rank = -1 if case["rank"] is None else case["rank"]
        outcome, diagnosis = diagnosed(
            case, folder, HERE / "second" / "program.py", "--rank", str(rank),
            "--parallel", case["parallel"], "--truth", name,
        )  # fmt: skip
        if diagnosis is None:
            return outcome
        assert diagnosis.job is not None
        step = diagnosis.step
        known = spent_in(folder / f"rank{rank}.json", case["fault"], step.ended_s, step.samples_s)
        outcome |= judged(case, diagnosis.job, known.took_s) | {"step_s": diagnosis.step_s}
        if CAUSES.get(case["fault"]) and known.wall_s and diagnosis.job.lost_s is not None:
            outcome |= {
                "wall_truth_s": known.wall_s,
                "wall_error": diagnosis.job.lost_s / known.wall_s - 1,
                "truth_steps": known.steps,
            }
        return outcome


def diagnosed(
    case: dict[str, Any], folder: Path, program: Path, *options: str
) -> tuple[dict[str, Any], gobrrr.Diagnosis | None]:
    """The job of a case under gobrrr: what is known of it so far, and the diagnosis if any."""
    command = [
        sys.executable, "-m", "gobrrr", "run", "--quiet", "--stop",
        "--nproc-per-node", str(case["ranks"]), "--json", str(folder / "d.json"),
        str(program), "--fault", case["fault"], "--delay-ms", str(case["delay_ms"]), *options,
    ]  # fmt: skip
    # The package that this script imports, whatever the folder.
    root = str(Path(gobrrr.__file__).resolve().parents[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": root}
    began = time.monotonic()
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, env=environment, check=False
    )
    outcome: dict[str, Any] = {"case": case, "seconds": time.monotonic() - began}
    if not (folder / "d.json").exists():
        return outcome | {"error": done.stderr[-2000:], "right": False}, None
    return outcome, gobrrr.load(folder / "d.json")


Told = dict[str, float]


def told(path: Path) -> Told | None:
    """What the program has written so far; ``None``: nothing, or it writes just now."""
    try:
        found: Told = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return found


def mean_after(first: Told, last: Told) -> float | None:
    """The mean over the steps between two means over all steps so far."""
    steps = last["steps"] - first["steps"]
    if steps <= 0:
        return None
    return (last["spent_s"] * last["steps"] - first["spent_s"] * first["steps"]) / steps


class FirstTold(threading.Thread):
    """Keeps the first of what a program tells in a file that it writes anew."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.told: Told | None = None
        self._path = path
        self._over = threading.Event()

    def run(self) -> None:
        while self.told is None and not self._over.wait(0.02):
            self.told = told(self._path)

    def __enter__(self) -> FirstTold:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self.join()


def judged(case: dict[str, Any], job: JobRecord, spent_s: float | None) -> dict[str, Any]:
    found = {
        "slowest": job.slowest, "cause": job.cause, "phase": job.phase, "place": job.place,
        "lost_s": job.lost_s, "excess_s": job.excess_s, "late_start": job.late_start,
        "late_start_s": job.late_start_s, "missing": job.missing,
    }  # fmt: skip
    fault = case["fault"]
    if fault == "none":
        return {"found": found, "right": job.slowest is None and job.late_start is None}
    if fault == "late":
        known_s = case["delay_ms"] * 1e-3
        right = job.late_start == case["rank"] and job.slowest is None
        error = None if job.late_start_s is None else job.late_start_s / known_s - 1
        return {"found": found, "right": right, "truth_s": known_s, "error": error}
    cause, phase = CAUSES[fault]
    right_rank = job.slowest == case["rank"]
    right_cause = job.cause == cause and phase in (None, job.phase)
    error = None if not spent_s or job.lost_s is None else job.lost_s / spent_s - 1
    return {
        "found": found, "right_rank": right_rank, "right_cause": right_cause,
        "right": right_rank and right_cause, "truth_s": spent_s, "error": error,
    }  # fmt: skip


def summary(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    faulty = [o for o in outcomes if o["case"]["fault"] != "none"]
    errors = [abs(o["error"]) for o in faulty if o["right"] and o.get("error") is not None]
    settled = [abs(o["settled_error"]) for o in faulty if o.get("settled_error") is not None]
    return {
        "cases": len(outcomes),
        "right": sum(o["right"] for o in outcomes),
        "right_rank": sum(o.get("right_rank", o["right"]) for o in outcomes),
        "by_fault": by_fault(outcomes),
        "named_without_fault": sum(not o["right"] for o in outcomes if o not in faulty),
        "time_lost_within_10_percent": sum(error <= WITHIN for error in errors),
        "time_lost_of": len(errors),
        "median_error_of_time_lost": statistics.median(errors) if errors else None,
        "settled_pauses_within_10_percent": sum(error <= WITHIN for error in settled),
        "settled_pauses_of": len(settled),
    }


def against_steps(
    outcomes: list[dict[str, Any]], others: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """What was said to be lost beside how much longer the job's median step was than without.

    Without: the median of the jobs that no fault or a late start was put into, with as many ranks
    held together in the same way, in ``outcomes`` and ``others``. Sums over the cases that are
    judged right and whose delay is in every step; it decides nothing.
    """
    lengths: dict[tuple[str | None, int], list[float]] = {}
    for outcome in (*outcomes, *others):
        if outcome["case"]["fault"] in ("none", "late") and outcome.get("step_s"):
            lengths.setdefault(_kind(outcome), []).append(outcome["step_s"])
    found = {"cases": 0, "lost_s": 0.0, "truth_s": 0.0, "steps_longer_s": 0.0}
    for outcome in outcomes:
        without = lengths.get(_kind(outcome))
        in_every_step = outcome["case"]["fault"] not in ("none", "late", "gc")
        if not (in_every_step and outcome["right"] and without and outcome.get("truth_s")):
            continue
        found["cases"] += 1
        found["lost_s"] += outcome["found"]["lost_s"]
        found["truth_s"] += outcome["truth_s"]
        found["steps_longer_s"] += outcome["step_s"] - statistics.median(without)
    return found


def by_ranks(
    outcomes: list[dict[str, Any]], others: Sequence[dict[str, Any]] = ()
) -> dict[str, dict[str, Any]]:
    """``against_steps`` of jobs of two ranks and of four, which share the two processors."""
    return {
        str(ranks): against_steps([o for o in outcomes if o["case"]["ranks"] == ranks], others)
        for ranks in (2, 4)
    }


def _kind(outcome: dict[str, Any]) -> tuple[str | None, int]:
    return outcome["case"].get("parallel"), outcome["case"]["ranks"]


def by_fault(outcomes: list[dict[str, Any]]) -> dict[str, str]:
    found: dict[str, list[bool]] = {}
    for outcome in outcomes:
        found.setdefault(outcome["case"]["fault"], []).append(outcome["right"])
    return {fault: f"{sum(of)} of {len(of)}" for fault, of in found.items()}


def wall_summary(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """The time lost against the wall clock of the delays, which decides nothing (second set)."""
    errors = [abs(o["wall_error"]) for o in outcomes if o["right"] and "wall_error" in o]
    return {
        "wall_within_10_percent": sum(error <= WITHIN for error in errors),
        "wall_of": len(errors),
    }


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--set", choices=("first", "second", "both"), default="both")
    options.add_argument("--only", default="", help="cases whose names hold this")
    options.add_argument("--every", type=int, default=1, help="every n-th case")
    given = options.parse_args()
    chosen, silent, second = [], [], []
    if given.set != "second":
        chosen = listed(HERE / "cases.json", given.only, given.every)
        # Nobody knows the truth of a case without what it writes, except of these.
        silent = [case for case in chosen if case["fault"] in ("none", "late")]
    if given.set != "first":
        second = listed(HERE / "second" / "cases.json", given.only, given.every)
    if given.quick:
        chosen, silent, second = chosen[:1], [], second[:1]
    record = Record("ranks", given)
    outcomes: list[dict[str, Any]] = []
    controls: list[dict[str, Any]] = []
    of_second: list[dict[str, Any]] = []
    runs: list[tuple[list[dict[str, Any]], list[dict[str, Any]], Run]] = [
        (outcomes, chosen, run_case),
        (controls, silent, partial(run_case, writes=False)),
        (of_second, second, run_second_case),
    ]
    for made, cases, run in runs:
        for case in cases:
            try:
                made.append(run(case))
            except subprocess.TimeoutExpired:
                made.append({"case": case, "error": f"not done in {LIMIT_S:g} s", "right": False})
            last = made[-1]
            print(case["name"], "right" if last["right"] else "WRONG", last.get("found", last),
                  last.get("truth_s"), flush=True)  # fmt: skip
            record.write(body(given.set, outcomes, controls, of_second))
    told_of = body(given.set, outcomes, controls, of_second)
    print(json.dumps(told_of.get("summary"), indent=1))
    print(json.dumps(told_of.get("second", {}).get("summary"), indent=1))
    failed = [outcome for made, _, _ in runs for outcome in made if "found" not in outcome]
    if failed:
        print(f"{failed[0]['case']['name']}: {failed[0]['error']}", file=sys.stderr)
    return int(bool(failed))


def listed(path: Path, only: str, every: int) -> list[dict[str, Any]]:
    cases = json.loads(path.read_text())
    return [case for case in cases if only in case["name"]][::every]


def body(
    which: str,
    outcomes: list[dict[str, Any]],
    controls: list[dict[str, Any]],
    second: list[dict[str, Any]],
) -> dict[str, Any]:
    """What the result holds: the two sets beside each other, never averaged."""
    found: dict[str, Any] = {}
    if which != "second":
        none = [o for o in controls if o["case"]["fault"] == "none"]
        named = {"cases": len(none), "named": sum(not o["right"] for o in none)}
        of_first = summary(outcomes) | {"controls": named | {"by_fault": by_fault(controls)}}
        of_first["against_steps"] = by_ranks(outcomes, controls)
        found |= {"summary": of_first, "outcomes": outcomes, "controls": controls}
    if which != "first":
        of_second = summary(second) | wall_summary(second)
        of_second["against_steps"] = by_ranks(second)
        found["second"] = {"summary": of_second, "outcomes": second}
    return found


if __name__ == "__main__":
    sys.exit(main())
