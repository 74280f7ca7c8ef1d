"""Real scripts, diagnosed at several warm-ups and held against what is true of them.

    PYTHONPATH=. python benchmarks/real_scripts/run.py --count           # FLOPs, by FlopCounterMode
    PYTHONPATH=. python benchmarks/real_scripts/run.py --out FILE.json   # gobrrr on every script
    PYTHONPATH=. python benchmarks/real_scripts/run.py --only gan,wgan --warmups 5

Each script runs under ``gobrrr run`` once for each warm-up, with its own clock on. Held against it:
work per step within 5 % of the truth (10 % where steps differ in size), step time within 2 % of the
own clock, the verdict, and the share of the wall time that steps take within 3 points.
"""

from __future__ import annotations

import bisect
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.command import Record, parser
from benchmarks.real_scripts.truth import TRUTH, Truth

HERE = Path(__file__).resolve().parent

WORK, WORK_VARYING, TIME, WALL = 0.05, 0.10, 0.02, 0.03
LIMIT_S = 400
# Of leaving out steps between two stretches, in log ratios: three steps that differ by a tenth.
GAP = 0.3


def script_of(name: str) -> Path:
    return HERE / "scripts" / f"{name}.py"


def counted_flops() -> dict[str, float]:
    return json.loads((HERE / "counted.json").read_text())


def missing(truth: Truth) -> list[str]:
    return [name for name in truth.needs if importlib.util.find_spec(name) is None]


def launcher(truth: Truth) -> list[str]:
    if truth.ranks == 1:
        return [sys.executable]
    return [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={truth.ranks}"]


def own_clock(command: list[str], folder: Path, **more: str) -> tuple[dict[str, Any], str]:
    """Run a command with the script's clock on; what it wrote, and the end of what it printed."""
    path = folder / "clock.json"
    environment = {**os.environ, "OWN_CLOCK": str(path), **more}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, cwd=folder
    )
    said = (done.stdout + done.stderr)[-2000:]
    if not path.is_file():
        raise RuntimeError(f"{' '.join(command)} wrote no clock: {said}")
    return json.loads(path.read_text()), said


def count(names: list[str]) -> None:
    """FLOPs of a step by torch's own counter, eagerly, in a run of its own."""
    path = HERE / "counted.json"
    found = json.loads(path.read_text()) if path.is_file() else {}
    for name in names:
        truth = TRUTH[name]
        if missing(truth):
            print(f"{name}: needs {', '.join(missing(truth))}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            command = [*launcher(truth), str(script_of(name))]
            clock, _ = own_clock(command, Path(folder), OWN_COUNT="1", TORCHDYNAMO_DISABLE="1")
        steps = [
            flops for (part, *_), flops in zip(clock["spans"], clock["flops"]) if part == "step"
        ]
        found[name] = statistics.mean(steps)
        print(f"{name}: {found[name] / 1e6:.2f} MFLOP a step (formula: {truth.flops})", flush=True)
        path.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")


def own_figures(clock: dict[str, Any], truth: Truth) -> dict[str, float]:
    """Seconds a step, and the share of the wall time that steps take, by the own clock."""
    spans = clock["spans"]
    steps = [(end - begin) * 1e-9 for name, begin, end in spans if name == "step"]
    known = [span for span in spans if span[0] == "step" or span[0] in truth.parts]
    total = sum(end - begin for _, begin, end in known) * 1e-9
    typical = statistics.median(steps)
    # While gobrrr records and profiles steps are longer: not the program's time.
    usual = [min(step, 3 * typical) for step in steps] if truth.varying else steps
    middle = statistics.mean if truth.varying else statistics.median
    apart = {}
    for part in truth.parts:
        lengths = [(end - begin) * 1e-9 for name, begin, end in known if name == part]
        apart[part] = statistics.median(lengths) * len(lengths) if lengths else 0.0
    plain = middle(usual) * len(steps)
    return {
        "step_s": middle(usual),
        "steps_share": plain / (plain + sum(apart.values())) if apart else 1.0,
        "steps": len(steps),
        "total_s": total,
    }


def same_steps(clock: dict[str, Any], samples_s: list[float]) -> list[float]:
    """The own clock's times of the steps that gobrrr timed; empty where they are not found.

    The own clock runs on while gobrrr records and profiles, and of varying steps every sample has
    its own mean: a second figure beside ``own_figures``, which it does not replace. gobrrr's steps
    come in the clock's order, in stretches: of all ways to lay them so the one whose lengths
    differ least (the sum of their log ratios), where leaving steps out has a price, which keeps
    single ones from being chosen for their length.
    """
    steps = [(end - begin) * 1e-9 for name, begin, end in clock["spans"] if name == "step"]
    n, m = len(samples_s), len(steps)
    if not 1 < n <= m:
        return []
    apart = [[abs(math.log(own / told)) for own in steps] for told in samples_s]
    # What laying gobrrr's first steps costs if the last of them lies on the clock's j-th.
    cost = apart[0]
    came_from: list[list[int]] = []
    for row in apart[1:]:
        now, before, open_at, open_cost = [math.inf], [-1], -1, math.inf
        for j in range(1, m):
            if j >= 2 and cost[j - 2] < open_cost:
                open_at, open_cost = j - 2, cost[j - 2]
            straight = cost[j - 1] <= open_cost + GAP
            now.append(row[j] + (cost[j - 1] if straight else open_cost + GAP))
            before.append(j - 1 if straight else open_at)
        cost = now
        came_from.append(before)
    last = min(range(m), key=cost.__getitem__)
    if cost[last] > 0.1 * n:
        return []
    chosen = [last]
    for before in reversed(came_from):
        chosen.append(before[chosen[-1]])
    return [steps[j] for j in reversed(chosen)]


def timed_steps(clock: dict[str, Any], samples_s: list[float], ended_s: list[float]) -> list[float]:
    """The own clock's times of the steps that gobrrr timed, one for each that both have.

    Both clocks are the process's ``time.perf_counter``: a sample is the step that it shares most
    time with. A third figure beside ``own_figures``, whose median is over all steps of the program,
    those too that gobrrr records and profiles and those after it has left, and ``same_steps``,
    which goes by lengths alone.
    """
    steps = [(begin * 1e-9, end * 1e-9) for name, begin, end in clock["spans"] if name == "step"]
    begins = [begin for begin, _ in steps]
    found = []
    for told, end in zip(samples_s, ended_s):
        first = max(0, bisect.bisect_right(begins, end - told) - 1)
        last = bisect.bisect_left(begins, end)
        shared = {
            i: min(end, steps[i][1]) - max(end - told, steps[i][0]) for i in range(first, last)
        }
        most = max(shared, key=shared.__getitem__, default=-1)
        if most >= 0 and shared[most] > 0.5 * told:
            found.append(steps[most][1] - steps[most][0])
    return found


def gobrrr_figures(diagnosis: dict[str, Any], truth: Truth) -> dict[str, Any]:
    """What gobrrr says of the same."""
    time = diagnosis["step"]["time_s"]
    matrix = sum((row["flops"] or 0.0) for row in diagnosis["ops"] if row.get("unit") == "matrix")
    wall = diagnosis.get("wall") or {}
    parts = {part["name"]: part["share"] for part in wall.get("parts", [])}
    return {
        "step_s": time["mean"] if truth.varying else time["median"],
        "flops": matrix,
        "bytes": diagnosis["counters"].get("bytes"),
        "regime": diagnosis["regime"],
        "close": diagnosis["close"],
        "kind": diagnosis["step"]["kind"],
        "mfu": diagnosis["mfu"],
        "steps_share": wall.get("steps_share"),
        "parts": parts,
        "leaves": diagnosis["leaves"],
        "accounted_s": sum(diagnosis["leaves"].values()),
    }


def score(
    own: dict[str, float], told: dict[str, Any], truth: Truth, flops: float
) -> dict[str, Any]:
    """Each claim: whether it holds, and the figures behind it."""
    checks: dict[str, Any] = {}
    off = abs(told["flops"] - flops) / flops if flops else float(told["flops"] > 1e4)
    checks["work"] = (off <= (WORK_VARYING if truth.varying else WORK), off)
    if truth.bytes_moved is not None:
        off = abs(told["bytes"] - truth.bytes_moved) / truth.bytes_moved
        checks["bytes"] = (off <= WORK, off)
    off = told["step_s"] / own["step_s"] - 1
    checks["time"] = (abs(off) <= TIME, off)
    if truth.regime is not None:
        checks["verdict"] = (told["regime"] == truth.regime, told["regime"])
    for leaves, least in truth.at_least:
        share = sum(told["leaves"][leaf] for leaf in leaves) / told["accounted_s"]
        checks["+".join(leaves)] = (share >= least, share)
    if told["steps_share"] is None:
        checks["wall"] = (False, None)
    else:
        off = told["steps_share"] - own["steps_share"]
        checks["wall"] = (abs(off) <= WALL, off)
    if told["mfu"] is not None:
        checks["possible"] = (told["mfu"] <= 1.05, told["mfu"])
    checks["kind"] = (truth.kind in told["kind"], told["kind"])
    return {
        name: {"holds": bool(holds), "figure": figure} for name, (holds, figure) in checks.items()
    }


def run_one(name: str, warmup: int | None, folder: Path) -> dict[str, Any]:
    truth = TRUTH[name]
    path = folder / "diagnosis.json"
    options = [] if warmup is None else ["--warmup", str(warmup)]
    command = [*launcher(truth), "-m", "gobrrr", "run", *options, "--json", str(path)]
    row: dict[str, Any] = {"script": name, "warmup": warmup}
    try:
        clock, said = own_clock([*command, str(script_of(name))], folder)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return {**row, "error": str(error)}
    if not path.is_file():
        return {**row, "error": said[-600:]}
    diagnosis = json.loads(path.read_text())
    flops = truth.flops if truth.flops is not None else counted_flops()[name]
    own, told = own_figures(clock, truth), gobrrr_figures(diagnosis, truth)
    step = diagnosis["step"]
    middle = statistics.mean if truth.varying else statistics.median
    same = same_steps(clock, step["samples_s"])
    own["same_steps"] = len(same)
    if same:
        own["same_steps_off"] = told["step_s"] / middle(same) - 1
    timed = timed_steps(clock, step["samples_s"], step["ended_s"])
    own["timed_steps"] = len(timed)
    if timed:
        own["timed_steps_s"] = middle(timed)
        own["timed_steps_off"] = told["step_s"] / middle(timed) - 1
        own["timed_steps_off_s"] = told["step_s"] - middle(timed)
    told["seen"] = step["seen"]
    checks = score(own, told, truth, flops)
    told = {key: value for key, value in told.items() if key != "leaves"}
    return {**row, "own": own, "told": told, "flops": flops, "checks": checks}


def within(rows: list[dict[str, Any]], which: str) -> dict[str, Any]:
    """How many runs have this difference from the own clock, and how many a small one."""
    off = [row["own"][which] for row in rows if which in row.get("own", {})]
    return {"found": len(off), "within_2_percent": sum(abs(each) <= TIME for each in off)}


def timed_summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How far gobrrr's step time lies from the own clock's over the very steps that it timed."""
    runs = [row["own"] for row in rows if "timed_steps_off" in row.get("own", {})]
    found = within(rows, "timed_steps_off")
    if not runs:
        return found
    return found | {
        "median_off": statistics.median(own["timed_steps_off"] for own in runs),
        "median_off_s": statistics.median(own["timed_steps_off_s"] for own in runs),
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How often each claim holds, over scripts and warm-ups; scripts where all claims hold."""
    held: dict[str, list[bool]] = {}
    for row in rows:
        for name, check in row.get("checks", {}).items():
            held.setdefault(name, []).append(check["holds"])
    scripts = sorted({row["script"] for row in rows})
    whole = {
        script: all(
            "checks" in row and all(check["holds"] for check in row["checks"].values())
            for row in rows
            if row["script"] == script
        )
        for script in scripts
    }
    return {
        "scripts": len(scripts),
        "runs": len(rows),
        "errors": sum("error" in row for row in rows),
        "time_on_same_steps": within(rows, "same_steps_off"),
        "time_on_timed_steps": timed_summary(rows),
        "claims": {name: f"{sum(of)} of {len(of)}" for name, of in sorted(held.items())},
        "scripts_where_all_hold": sum(whole.values()),
        "scripts_with_a_miss": [script for script, holds in whole.items() if not holds],
    }


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--count", action="store_true", help="write counted.json")
    options.add_argument("--only", default="", help="names, separated by commas")
    options.add_argument("--warmups", default="auto,5,6", help="warm-ups; auto: gobrrr's choice")
    args = options.parse_args()
    names = [name for name in args.only.split(",") if name] or list(TRUTH)
    if args.quick:
        names, args.warmups = ["raw_tensors"], "auto"
    if args.count:
        count(names)
        return 0
    record = Record("real_scripts", args, "transformers", "accelerate", "lightning")
    rows: list[dict[str, Any]] = []
    left_out: dict[str, list[str]] = {}
    for name in names:
        lacking = missing(TRUTH[name])
        if lacking:
            left_out[name] = lacking
            print(f"{name}: left out, needs {', '.join(lacking)}")
            continue
        for given in args.warmups.split(","):
            with tempfile.TemporaryDirectory() as folder:
                row = run_one(name, None if given == "auto" else int(given), Path(folder))
            rows.append(row)
            missed = [
                f"{what} {check['figure']}"
                for what, check in row.get("checks", {}).items()
                if not check["holds"]
            ]
            print(f"{name} --warmup {given}: {row.get('error') or missed or 'holds'}", flush=True)
            record.write({"summary": summary(rows), "left_out": left_out, "runs": rows})
    failed = [row for row in rows if "error" in row]
    if failed:
        print(f"{failed[0]['script']}: {failed[0]['error']}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
