"""Search for fixes on two sets of programs; write what was predicted and what came of it.

    PYTHONPATH=. python benchmarks/fixes/run.py --out FILE
    PYTHONPATH=. python benchmarks/fixes/run.py --out FILE --set new --only unread_head   # this one
    PYTHONPATH=. python benchmarks/fixes/run.py --out FILE --summarise                    # run none

``original`` are the first programs with their first keys, in whose sight fixes were built and
constants fitted; ``new`` are programs that were written down, with keys, before any was run. The
two are scored apart. Per program: is the flaw's fix ranked first and verified, or, where only its
author can mend it, ranked first with the line. Then the best set is timed again in fresh processes
by another clock, in turns with the original, the version mended by hand and every mode of
``torch.compile``. Results are written after each program; a second call goes on where one was
ended. A program takes one to two minutes (``--budget`` is for its trials).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# The file says one thread, whatever the shell has set.
os.environ["OMP_NUM_THREADS"] = "1"
HERE = Path(__file__).resolve().parent

from benchmarks.command import Record, parser  # noqa: E402
from benchmarks.fixes.again import TIE, time_function, time_script  # noqa: E402
from benchmarks.fixes.program import Program  # noqa: E402
from benchmarks.fixes.summary import is_mended, summary  # noqa: E402

from gobrrr.pipeline.fix import fix_on, program_bench  # noqa: E402
from gobrrr.search.options import Options  # noqa: E402
from gobrrr.search.result import FixResult  # noqa: E402
from gobrrr.timeline.errors import GobrrrError  # noqa: E402
from gobrrr.verification.messages import Target  # noqa: E402

TOLERANCE = 1e-2
SETS = ("new", "original")
FITTED = {"new": False, "original": True}
# Whoever reads a figure of the new programs has to know what their own runs have led to.
KNOWN = {
    "new": "first run at 7320532; code after it mends causes of misses and errors that this run "
    "showed, with no constant and no interval from these programs",
    "original": "all along",
}
# With --quick: it has to run, no more.
QUICK = {"new": ("dense_embedding_gradient",), "original": ()}
QUICK_BUDGET_S = 3.0


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--set", choices=SETS, default="")
    options.add_argument("--only", default="", help="these programs, anew; commas between")
    options.add_argument(
        "--budget",
        type=float,
        default=45.0,
        help="seconds of trials per program, twice that for scripts",
    )
    options.add_argument("--minutes", type=float, default=0.0, help="begin no program after these")
    options.add_argument("--note", default="", help="what else ran on the machine, for the file")
    options.add_argument("--no-again", action="store_true", help="do not time the winner again")
    options.add_argument("--summarise", action="store_true", help="remake the summary, run none")
    arguments = options.parse_args()
    if arguments.quick:
        arguments.budget = min(arguments.budget, QUICK_BUDGET_S)
    begun = time.monotonic()
    record = Record("fixes", arguments, "transformers")
    known = _read(arguments.out)
    wanted = set(filter(None, arguments.only.split(",")))
    sets = {name: programs_of(name) for name in SETS}
    for name in (arguments.set,) if arguments.set else SETS:
        for program in sets[name]:
            here = known.setdefault(name, {})
            chosen = program.name in (wanted or (QUICK[name] if arguments.quick else wanted))
            again = chosen or (not wanted and not arguments.quick and program.name not in here)
            late = arguments.minutes and time.monotonic() - begun > 60 * arguments.minutes
            if arguments.summarise or not again or late:
                continue
            here[program.name] = _examined(name, program, arguments)
            write(record, sets, known, arguments.note)
            print(one_line(here[program.name]), flush=True)
    made = write(record, sets, known, arguments.note)
    print(json.dumps(made["summary"], indent=1))
    failed = [p for listed in made["sets"].values() for p in listed if "error" in p]
    if failed:
        print(f"{failed[0]['name']}: {failed[0]['error']}", file=sys.stderr)
    return int(bool(failed))


def programs_of(name: str) -> tuple[Program, ...]:
    """A set's programs and keys."""
    path = HERE / name / "programs.py"
    spec = importlib.util.spec_from_file_location(f"{name}_programs", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    programs: tuple[Program, ...] = module.PROGRAMS
    return programs


def _read(path: Path | None) -> dict[str, dict[str, Any]]:
    if path is None or not path.exists():
        return {}
    made = json.loads(path.read_text())
    return {name: {p["name"]: p for p in made["sets"].get(name, ())} for name in SETS}


def _examined(of_set: str, program: Program, arguments: argparse.Namespace) -> dict[str, Any]:
    begun = time.monotonic()
    try:
        record = examine(of_set, program, arguments.budget)
        if not arguments.no_again:
            record["again"] = _again(file_of(of_set, program), program, record, arguments.quick)
    except GobrrrError as error:
        record = {"name": program.name, "error": str(error)}
    record["took_s"] = round(time.monotonic() - begun, 1)
    record["load_average"] = os.getloadavg()[0]
    record["commit"] = _commit()
    return record


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return done.stdout.strip()


def write(
    record: Record,
    sets: dict[str, tuple[Program, ...]],
    known: dict[str, dict[str, Any]],
    note: str,
) -> dict[str, Any]:
    """The file, anew after each program; the keys are those of now."""
    listed: dict[str, list[dict[str, Any]]] = {}
    for name, programs in sets.items():
        records = known.get(name, {})
        for program in programs:
            if program.name in records and "error" not in records[program.name]:
                records[program.name].update(of_flaw(name, program, records[program.name]["fixes"]))
        listed[name] = [records[p.name] for p in programs if p.name in records]
    made = record.whole({
        "settings": {"threads": 1, "tolerance": TOLERANCE, "tie": TIE},
        "note": note,
        "summary": {name: summary(listed[name], FITTED[name], KNOWN[name]) for name in sets},
        "sets": listed,
    })  # fmt: skip
    record.write(made)
    return made


def examine(of_set: str, program: Program, budget_s: float) -> dict[str, Any]:
    """Search on one program; what came of it."""
    path = file_of(of_set, program)
    script = program.kind == "script"
    target = Target("script", str(path)) if script else Target("function", f"{path}:{program.name}")
    # Every program but a few has the machine's one thread on purpose.
    exclude = () if "all_threads" in program.fixed_by else ("all_threads",)
    # Of a script each trial starts two processes.
    budget_s *= 2 if script else 1
    result = fix_on(
        program_bench(target, TOLERANCE), Options((), exclude, budget_s), None, lambda *phase: None
    )
    record = describe(program, result)
    record["environment"] = {k: v for f in result.best_fixes for k, v in f.environment.items()}
    return record


def _again(path: Path, program: Program, record: dict[str, Any], quick: bool) -> dict[str, Any]:
    try:
        return timed_again(path, program, record, modes=not quick)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        # A process that died or hung: the search's own outcome is kept.
        return {"ratios": {}, "problems": {"": f"{type(error).__name__}: {error}"}}


def timed_again(
    path: Path, program: Program, record: dict[str, Any], *, modes: bool
) -> dict[str, Any]:
    """The best set beside the original, what was mended by hand, and compile modes."""
    best = record["best"]
    if program.kind == "script":
        with tempfile.TemporaryDirectory() as folder:
            written = _written(path, best, Path(folder)) if best else None
            timed = time_script(path, program.mended, best, written, record["step_s"])
        return timed | {"written": written is not None}
    return time_function(
        path, program.name, program.mended, best, record["environment"], modes=modes
    )


def file_of(of_set: str, program: Program) -> Path:
    """Where the program's source is."""
    folder = HERE / of_set
    if program.kind == "script":
        return folder / "scripts" / f"{program.name}.py"
    return folder / program.file


def _written(path: Path, best: list[str], folder: Path) -> Path | None:
    """The script as ``gobrrr fix --write`` writes it; ``None`` where it writes none."""
    from gobrrr.fixes.catalogue import FIXES
    from gobrrr.fixes.rewriting.rewrite import rewrite

    chosen = [fix for fix in FIXES if fix.name in best]
    text = rewrite(path.read_text(), chosen, 1.0).text
    if text is None:
        return None
    new = folder / path.name
    new.write_text(text)
    return new


def of_flaw(of_set: str, program: Program, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The flaw: where the first of its fixes ranks, whether one was verified or names its line."""
    # A change of precision is told apart: it takes no other fix's place.
    ranked = [r for r in rows if not r["precision"] or r["fix"] in program.fixed_by]
    mine = [(i + 1, r) for i, r in enumerate(ranked) if r["fix"] in program.fixed_by]
    return {
        "flaw": program.flaw,
        "fixed_by": program.fixed_by,
        "only_user": program.only_user,
        "rank": min((i for i, _ in mine), default=None),
        "verified": any(r["verdict"] == "faster" for _, r in mine),
        "line_named": bool(mine) and _names_flaw(file_of(of_set, program), mine[0][1]["sources"]),
    }


def _names_flaw(path: Path, sources: list[str]) -> bool:
    """Whether one of the lines is marked in the source."""
    lines = path.read_text().splitlines()
    numbers = [m for s in sources if (m := re.search(r"([^/\s:]+):(\d+)", s)) is not None]
    return any(
        m[1] == path.name and "# flaw" in lines[int(m[2]) - 1]
        for m in numbers
        if int(m[2]) <= len(lines)
    )


def describe(program: Program, result: FixResult) -> dict[str, Any]:
    """What is kept of a search."""
    found = result.found
    step_s = found.facts.step_s
    return {
        "name": program.name,
        "step_s": step_s,
        "regime": found.diagnosis.regime,
        "null": _ratio(found.null.ratio) if found.null is not None else None,
        "quiet": found.null.quiet if found.null is not None else None,
        "why_not": {
            name: result.ruled_out[name] for name in program.fixed_by if name in result.ruled_out
        },
        "best": list(found.best.fixes) if found.best is not None else [],
        "best_speedup": result.speedup,
        "fixes": [row(tried, step_s) for tried in found.tried],
        "combinations": [
            {"fixes": t.fixes, "verdict": t.verdict, "speedup": _ratio(t.speedup)}
            for t in found.combinations
        ],
        "notices": found.notices,
    }


def row(tried: Any, step_s: float) -> dict[str, Any]:
    """One fix: predicted and measured, in parts of the step."""
    prospect, trial = tried.prospect, tried.trial
    saved = None
    if trial is not None and trial.before_s and trial.after_s:
        # Against the step of the same turns; scaled to the step that was diagnosed.
        saved = 1.0 - trial.after_s / trial.before_s
    return {
        "fix": tried.fix.name,
        "precision": tried.fix.precision,
        "low": prospect.low_s / step_s,
        "expected": prospect.expected_s / step_s,
        "high": prospect.high_s / step_s,
        "verdict": None if trial is None else trial.verdict,
        "reason": tried.reason if trial is None else trial.reason,
        "sources": list(prospect.sources),
        "speedup": None if trial is None else _ratio(trial.speedup),
        "saved": saved,
        "compile_s": None if trial is None else trial.compile_s,
    }


def _ratio(measured: Any) -> dict[str, float] | None:
    if measured is None:
        return None
    return {"median": measured.median, "low": measured.low, "high": measured.high}


def one_line(p: dict[str, Any]) -> str:
    """A program's outcome, to be read while it runs."""
    if "error" in p:
        return f"{p['name']}: {p['error']}"
    tried = ", ".join(
        f"{r['fix']} {r['expected']:+.2f}/" + (f"{r['saved']:+.2f}" if r["saved"] is not None
                                               else "-") + f" {(r['verdict'] or 'untried')[:6]}"
        for r in p["fixes"]
    )  # fmt: skip
    again = {k: round(r["median"], 2) for k, r in p.get("again", {}).get("ratios", {}).items()}
    mark = "" if not p["flaw"] else "mended " if is_mended(p) else "MISSED "
    return (
        f"{p['name']}: {mark}rank {p['rank']}, verified {p['verified']}, line {p['line_named']}, "
        f"best {'+'.join(p['best'])} {p['best_speedup']:.2f}x, again {again}, quiet {p['quiet']}, "
        f"{p['took_s']:.0f} s | {tried}"
    )


if __name__ == "__main__":
    sys.exit(main())
