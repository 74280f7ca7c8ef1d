"""Programs that are slow for a known cause, and the same without it: what gobrrr says of both.

    PYTHONPATH=. python benchmarks/causes/run.py --out FILE.json
    PYTHONPATH=. python benchmarks/causes/run.py --out FILE.json --only 03_replay_of_arrays

The keys (``keys.toml``) and programs were written before gobrrr was run on any of them, by somebody
who did not look at how it finds causes. Each program and its sound twin run alone first, in turns,
timed from outside: what the flaw costs. Then ``gobrrr run`` on both. ``named``: the cause is among
the findings and its word in the first three sentences; ``line``: the right line of the program;
``false``: a cause is named, or promised to save more than 3 %, on the sound twin. Where a fix of
``gobrrr fix`` is the remedy, it has to be verified as faster. Results are written after each.
Programs of one thread run one at a time on each processor, the others one after the other.
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
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.causes.keys import Key, not_run, read_keys
from benchmarks.causes.score import score_program, score_sound, summary
from benchmarks.command import Record, in_parallel, parser

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 400.0
ROUNDS = 1
# With --quick: one that shows itself in a line of Python, one in a setting.
QUICK = ("03_replay_of_arrays", "36_anomaly_detection")


def environment(key: Key, **more: str) -> dict[str, str]:
    return {**os.environ, **key.env, **more}


def launcher(key: Key) -> list[str]:
    if key.ranks == 1:
        return [sys.executable]
    return [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={key.ranks}"]


def timed(key: Key, which: str, folder: Path) -> tuple[float, float]:
    """Wall and processor time of the whole process alone, in seconds."""
    begin = time.perf_counter()
    command = ["timeout", f"{LIMIT_S:.0f}", *launcher(key), str(key.script(which))]
    with (folder / "said").open("w+b") as said:
        child = subprocess.Popen(
            command, env=environment(key), cwd=folder, stdout=said, stderr=said
        )  # fmt: skip
        # Of this process and those that it waited for, whatever else runs meanwhile.
        _, status, used = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            said.seek(0)
            raise subprocess.CalledProcessError(child.returncode, command, stderr=said.read())
    return wall_s, used.ru_utime + used.ru_stime


def alone(key: Key, rounds: int, folder: Path) -> dict[str, Any]:
    """What the flaw costs: medians of program and sound twin, run in turns."""
    seen: dict[str, list[tuple[float, float]]] = {"program": [], "sound": []}
    for number in range(rounds):
        for which in sorted(seen, reverse=bool(number % 2)):
            seen[which].append(timed(key, which, folder))
    middle = {
        which: [statistics.median(each) for each in zip(*times)] for which, times in seen.items()
    }
    return {
        "wall_s": {which: times[0] for which, times in middle.items()},
        "cpu_s": {which: times[1] for which, times in middle.items()},
        "wall_ratio": middle["program"][0] / middle["sound"][0],
        "cpu_ratio": middle["program"][1] / middle["sound"][1],
        "rounds": rounds,
    }


def gobrrr(arguments: list[str], key: Key, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gobrrr", *arguments], env=environment(key), cwd=folder,
        capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip


def diagnosed(
    key: Key, which: str, folder: Path, *more: str
) -> tuple[dict[str, Any], str, dict[str, float]]:
    """The diagnosis of a run, the report as text, and how long the run took."""
    path = folder / f"{which}.json"
    ranks = ["--nproc-per-node", str(key.ranks)] if key.ranks > 1 else []
    begin = time.perf_counter()
    done = gobrrr(
        ["run", "--quiet", *more, *ranks, "--json", str(path), str(key.script(which))], key, folder
    )
    took_s = time.perf_counter() - begin
    if not path.is_file():
        said = (done.stdout + done.stderr)[-1200:]
        raise RuntimeError(f"no diagnosis of {which}.py, status {done.returncode}: {said}")
    report = gobrrr(["report", str(path)], key, folder).stdout
    # Whose machine it was is nobody's business.
    text = path.read_text().replace(f"{ROOT}/", "")
    return json.loads(text), report, {"took_s": took_s, "status": done.returncode}


def tried(key: Key, folder: Path) -> dict[str, Any]:
    """The verdict of ``gobrrr fix`` on the remedy."""
    path = folder / "fix.json"
    done = gobrrr(
        ["fix", "--quiet", "--only", key.fix, "--budget", "30s", "--json", str(path),
         str(key.script("program"))], key, folder,
    )  # fmt: skip
    if not path.is_file():
        return {"verdict": "error", "reason": (done.stdout + done.stderr)[-600:]}
    for row in json.loads(path.read_text())["findings"]:
        if row["fix"] == key.fix and row["verification"]:
            found = row["verification"]
            return {name: found[name] for name in ("verdict", "reason", "speedup")}
    return {"verdict": "not tried", "reason": ""}


def all_causes(keys: dict[str, Key]) -> frozenset[str]:
    """Every name of a cause in the keys that is not that of a fix.

    A fix may well be worth something to a program that has no flaw.
    """
    done = subprocess.run(
        [sys.executable, "-m", "gobrrr", "fix", "--list"], capture_output=True, text=True,
        check=True, timeout=LIMIT_S,
    )  # fmt: skip
    fixes = {line.split()[0] for line in done.stdout.splitlines() if line.strip()}
    return frozenset(name for key in keys.values() for name in key.names) - fixes


def lacking(key: Key) -> str:
    """Why a program cannot be run here; empty if it can."""
    for package in key.needs:
        if importlib.util.find_spec(package) is None:
            return f"needs {package}"
    flags = Path("/proc/cpuinfo")
    here = set(flags.read_text().split()) if flags.is_file() else set()
    has = sorted(here & set(key.without))
    return f"the processor has {', '.join(has)}" if has else ""


def examined(
    key: Key, causes: frozenset[str], rounds: int, more: tuple[str, ...]
) -> dict[str, Any]:
    """Everything that is known of one program after this."""
    row: dict[str, Any] = {"program": key.name, "cause": key.cause, "ranks": key.ranks}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        try:
            if rounds:
                row["alone"] = alone(key, rounds, folder)
            diagnosis, report, row["run"] = diagnosed(key, "program", folder, *more)
            row["told"] = score_program(key, diagnosis, report)
            diagnosis, _, row["run_sound"] = diagnosed(key, "sound", folder, *more)
            row["sound"] = score_sound(key, causes, diagnosis)
            if key.fix and not more:
                row["fix"] = tried(key, folder)
        except subprocess.CalledProcessError as error:
            row["error"] = f"{error}: {error.stderr.decode(errors='replace')[-600:]}"
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            row["error"] = str(error).replace(f"{ROOT}/", "")
    return row


def shares_a_processor(key: Key) -> bool:
    """Whether a program needs one processor alone, so that another may run beside it."""
    text = key.script("program").read_text().lower()
    beside = any(word in text for word in ("workers", "thread", "fork"))
    return key.ranks == 1 and key.env.get("OMP_NUM_THREADS") == "1" and not beside


def line(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{row['program']}: {row['error'].splitlines()[0]}"
    told = row["told"]
    said = [what for what in ("named", "line", "remedy") if told[what]]
    said += [f"NOT {what}" for what in ("named", "line", "remedy") if told[what] is False]
    said += [f"wrong: {what}" for what in told["wrong"]]
    said += [f"FALSE on sound: {what}" for what in row["sound"]["false"]]
    if "fix" in row:
        said.append(f"fix {row['fix']['verdict']}")
    if "alone" in row:
        said.insert(0, f"{row['alone']['wall_ratio']:.2f}x alone")
    return f"{row['program']}: {', '.join(said)}"


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--only", default="", help="names of programs, separated by commas")
    options.add_argument("--rounds", type=int, default=ROUNDS, help="runs alone of each; 0: none")
    given = options.parse_args()
    keys = read_keys()
    names = [name for name in given.only.split(",") if name] or list(keys)
    if given.quick:
        names, given.rounds = list(QUICK), 0
    record = Record("causes", given, "numpy", "transformers", "tokenizers", "pillow")
    causes = all_causes(keys)
    rows: list[dict[str, Any]] = []
    left_out = {row["name"]: row["why"] for row in not_run()}
    chosen: list[Key] = []
    for name in names:
        if why := lacking(keys[name]):
            left_out[name] = why
            print(f"{name}: left out, {why}", flush=True)
            continue
        chosen.append(keys[name])
    more = ("--stop",) if given.quick else ()
    examine = partial(examined, causes=causes, rounds=given.rounds, more=more)
    alone = [key for key in chosen if not shares_a_processor(key)]
    beside = [key for key in chosen if shares_a_processor(key)]
    for row in itertools.chain(map(examine, alone), in_parallel(examine, beside)):
        rows.append(row)
        print(line(row), flush=True)
        rows.sort(key=lambda row: row["program"])
        record.write({"summary": summary(rows), "left_out": left_out, "rows": rows})
    failed = [row for row in rows if "error" in row]
    if failed:
        print(f"{failed[0]['program']}: {failed[0]['error']}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
