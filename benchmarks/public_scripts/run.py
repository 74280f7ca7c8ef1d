"""Scripts in the style of public training and inference code: is the step found, in all?

    PYTHONPATH=. python benchmarks/public_scripts/run.py --out FILE.json
    PYTHONPATH=. python benchmarks/public_scripts/run.py --out FILE.json --only mnist,dcgan

Nothing is fetched: each script of ``scripts/`` was written after a public one, which ``keys.toml``
names, with made-up data. Each runs alone, with a clock of its own, before and after ``gobrrr run``
has it: the length of a step comes from processes in which gobrrr was not. ``found``: the step is of
the right kind and within 10 % of that; ``first_line``: the report's beginning says what a step was
taken to be. The script's exit status under gobrrr has to be 0. As many scripts run at a time as
there are processors, each pinned to one.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.command import Record, in_parallel, parser
from benchmarks.public_scripts.keys import CALL, EXPLICIT, OPTIMIZER, Key, read_keys

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 300.0
LENGTH = 0.10
# The first steps of a process are longer than its others.
WARM_UP = 3
QUICK = ("mnist", "beam_search")
# Any of which the first line of a report has to hold.
SAYS = {OPTIMIZER: ("optimizer", "training step"), CALL: ("call",), EXPLICIT: ("gobrrr.step",)}


def lengths_s(marks: list[tuple[int, str]], per_step: int) -> list[float]:
    """Seconds of the steps between marks; what else stands between two steps counts to none.

    Args:
        marks: nanoseconds and names, in order.
        per_step: marks of the script in one step; cycles do not go across other marks.
    """
    found, begin, count = [], None, 0
    for (before, _), (when, name) in itertools.pairwise(marks):
        if name != "step":
            begin, count = None, 0
            continue
        begin, count = before if begin is None else begin, count + 1
        if count == per_step:
            found.append((when - begin) * 1e-9)
            begin, count = None, 0
    return found


def typical_s(lengths: list[float], varying: bool) -> float:
    """The mean of varying steps (one many times as long is not theirs), the median of others."""
    warm = lengths[WARM_UP:] or lengths
    middle = statistics.median(warm)
    if not varying:
        return middle
    return statistics.fmean(min(length, 5 * middle) for length in warm)


def alone(key: Key, folder: Path) -> dict[str, Any]:
    """The script by itself: its own clock, the time of the process."""
    path = folder / "clock"
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, str(key.script)], env={**os.environ, "PUBLIC_SCRIPT_CLOCK": str(path)},
        cwd=folder, capture_output=True, check=True, timeout=LIMIT_S,
    )  # fmt: skip
    took_s = time.perf_counter() - begin
    rows = [line.split() for line in path.read_text().splitlines()]
    lengths = lengths_s([(int(when), name) for when, name in rows], key.marks)
    return {"step_s": typical_s(lengths, key.varying), "steps": len(lengths), "took_s": took_s}


def said_first(report: str) -> str:
    """The first paragraph of a report: what was measured, how long it took, what a step is."""
    return " ".join(report.strip().partition("\n\n")[0].split())


def has_any(words: Iterable[str], text: str) -> bool:
    return any(word in text for word in words)


def right_kind(key: Key, kind: str) -> bool:
    """Whether a step is called what it is: only steps of optimizers train."""
    trains = has_any(("training", "optimizer"), kind)
    return trains if key.step == OPTIMIZER else not trains


def score(key: Key, own_s: float, diagnosis: dict[str, Any], report: str) -> dict[str, Any]:
    """What is told against what is true."""
    step = diagnosis["step"]
    told_s = step["time_s"]["mean" if key.varying else "median"]
    kind, length = right_kind(key, step["kind"]), told_s / own_s
    first = said_first(report)
    return {
        "kind": step["kind"],
        "right_kind": kind,
        "told_s": told_s,
        "ratio": length,
        "right_length": abs(length - 1) <= LENGTH,
        "found": kind and abs(length - 1) <= LENGTH,
        "first": first,
        "first_line": has_any(SAYS[key.step], first),
        "seen": step.get("seen"),
    }


def examined(key: Key, stop: bool) -> dict[str, Any]:
    """One script: alone, under gobrrr, alone again."""
    row: dict[str, Any] = {"script": key.name, "like": f"{key.project}: {key.path}"}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        path = folder / "diagnosis.json"
        try:
            own = [alone(key, folder)]
            begin = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-m", "gobrrr", "run", "--quiet", *(["--stop"] if stop else []),
                 "--json", str(path), str(key.script)],
                cwd=folder, capture_output=True, text=True, timeout=LIMIT_S,
            )  # fmt: skip
            row["took_s"], row["status"] = time.perf_counter() - begin, done.returncode
            if not stop:
                own.append(alone(key, folder))
            row["alone"] = own
            if not path.is_file():
                return {**row, "error": (done.stdout + done.stderr)[-800:]}
            report = subprocess.run(
                [sys.executable, "-m", "gobrrr", "report", str(path)], capture_output=True,
                text=True, timeout=LIMIT_S,
            ).stdout  # fmt: skip
            own_s = statistics.fmean(each["step_s"] for each in own)
            row["told"] = score(
                key, own_s, json.loads(path.read_text().replace(f"{ROOT}/", "")), report
            )
        except subprocess.CalledProcessError as error:
            row["error"] = f"{error}: {error.stderr.decode(errors='replace')[-600:]}"
        except subprocess.TimeoutExpired as error:
            row["error"] = str(error)
    return row


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """In how many scripts the step was found, and which were missed by what."""
    told = {row["script"]: row["told"] for row in rows if "told" in row}
    ratios = [each["ratio"] for each in told.values() if each["right_kind"]]
    return {
        "scripts": len(rows),
        "errors": [row["script"] for row in rows if "error" in row],
        "found": sum(each["found"] for each in told.values()),
        "first_line": sum(each["first_line"] for each in told.values()),
        "status_0": sum(row.get("status") == 0 for row in rows),
        "wrong_kind": [name for name, each in told.items() if not each["right_kind"]],
        "wrong_length": [name for name, each in told.items() if not each["right_length"]],
        "not_said_first": [name for name, each in told.items() if not each["first_line"]],
        "median_ratio": statistics.median(ratios) if ratios else None,
        "took_s": sum(row.get("took_s", 0.0) for row in rows),
    }


def lacking(key: Key) -> list[str]:
    return [name for name in key.needs if importlib.util.find_spec(name) is None]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--only", default="", help="names of scripts, separated by commas")
    given = options.parse_args()
    # The file says one thread, whatever the shell has set.
    os.environ["OMP_NUM_THREADS"] = "1"
    keys = read_keys()
    names = [name for name in given.only.split(",") if name] or list(keys)
    if given.quick:
        names = list(QUICK)
    record = Record("public_scripts", given, "transformers", "accelerate", "diffusers")
    rows: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    chosen: list[Key] = []
    for name in names:
        if missing := lacking(keys[name]):
            left_out[name] = f"needs {', '.join(missing)}"
            print(f"{name}: left out, {left_out[name]}", flush=True)
            continue
        chosen.append(keys[name])
    for row in in_parallel(partial(examined, stop=given.quick), chosen):
        rows.append(row)
        name, told = row["script"], row.get("told")
        said = row.get("error") or (
            f"{told['kind']}, {told['ratio']:.2f} of its length alone; "
            f"{'found' if told['found'] else 'NOT found'}"
        )
        print(f"{name}: {said}", flush=True)
        rows.sort(key=lambda row: row["script"])
        record.write({"summary": summary(rows), "left_out": left_out, "rows": rows})
    failed = [row for row in rows if "error" in row]
    if failed:
        print(f"{failed[0]['script']}: {failed[0]['error']}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
