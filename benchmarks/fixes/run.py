"""Search for fixes on every program of the zoo; write what was predicted and what came of it.

    python benchmarks/fixes/run.py --out benchmarks/results/fixes_<hardware>_<date>.json
    python benchmarks/fixes/run.py --out FILE --only small_ops,images_nchw    # these anew

Per program: is the known flaw's fix ranked first, is it verified, is the best set at least as fast
as the best plain ``torch.compile`` mode. Over all of them: the prediction's error, in parts of the
step. Each program takes one to two minutes; results are written after each.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import torch  # noqa: E402
from programs import COMPILED, PLAIN_MODES, PROGRAMS, Program  # noqa: E402

import gobrrr  # noqa: E402
from gobrrr.capture.workload import Workload, load_function  # noqa: E402
from gobrrr.measure import ratio_interval, time_interleaved  # noqa: E402
from gobrrr.pipeline.fix import FixResult, fix_on  # noqa: E402
from gobrrr.pipeline.fix_benches import ProgramBench  # noqa: E402
from gobrrr.search.options import Options  # noqa: E402
from gobrrr.timeline.errors import GobrrrError  # noqa: E402
from gobrrr.verification.messages import Target  # noqa: E402

TOLERANCE = 1e-2
# A set is as fast as another if its speedup is within this share of it: what a null may be off by.
TIE = 0.03
TOLD = ("faster", "same", "slower")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--note", default="", help="what else ran on the machine, for the file")
    parser.add_argument("--summarise", action="store_true", help="write the summary anew, run none")
    arguments = parser.parse_args()
    wanted = set(filter(None, arguments.only.split(",")))
    known: dict[str, Any] = {}
    if (wanted or arguments.summarise) and arguments.out.exists():
        known = {p["name"]: p for p in json.loads(arguments.out.read_text())["programs"]}
    for program in PROGRAMS:
        if arguments.summarise or (wanted and program.name not in wanted):
            continue
        begun = time.monotonic()
        try:
            known[program.name] = examine(program, arguments.budget)
        except GobrrrError as error:
            known[program.name] = {"name": program.name, "error": str(error)}
        known[program.name]["took_s"] = round(time.monotonic() - begun, 1)
        known[program.name]["load_average"] = os.getloadavg()[0]
        write(arguments.out, known, arguments.note)
        print(one_line(known[program.name]), flush=True)
    print(json.dumps(write(arguments.out, known, arguments.note)["summary"], indent=1))


def write(out: Path, known: dict[str, Any], note: str) -> dict[str, Any]:
    """The file, anew after each program."""
    for program in PROGRAMS:
        if program.name in known and "error" not in known[program.name]:
            of_program = known[program.name]
            of_program.update(of_flaw(program, of_program["fixes"]))
            of_program.update(beside_compile(of_program))
    made = report([known[p.name] for p in PROGRAMS if p.name in known])
    made["note"] = note
    out.write_text(json.dumps(made, indent=1) + "\n")
    return made


def examine(program: Program, budget_s: float) -> dict[str, Any]:
    """Search on one program, and judge the outcome."""
    if program.kind == "script":
        target = Target("script", str(HERE / "scripts" / f"{program.name}.py"))
    else:
        target = Target("function", f"{HERE / 'programs.py'}:{program.name}")
    bench = ProgramBench(target, TOLERANCE)
    # Every program but one has the machine's one thread on purpose.
    exclude = () if "all_threads" in program.fixed_by else ("all_threads",)
    result = fix_on(
        bench, Options((), (*exclude, *program.exclude), budget_s), None, lambda *phase: None
    )
    record = describe(program, result)
    if program.mended:
        record["mended"] = mended(program)
    return record


def of_flaw(program: Program, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The known flaw: where the first of its fixes ranks, and whether one was verified."""
    ranks = [i + 1 for i, r in enumerate(rows) if r["fix"] in program.fixed_by]
    return {
        "flaw": program.flaw,
        "fixed_by": program.fixed_by,
        "rank": min(ranks, default=None),
        "verified": any(r["verdict"] == "faster" for r in rows if r["fix"] in program.fixed_by),
    }


def beside_compile(record: dict[str, Any]) -> dict[str, bool | None]:
    """The best set beside the best plain ``torch.compile`` mode that has a verdict, if one has."""
    best, plain = record["best_speedup"], record["best_plain_compile_speedup"]
    return {
        "no_slower_than_compile": None if plain is None else best >= plain * (1 - TIE),
        "faster_than_compile": None if plain is None else best > plain * (1 + TIE),
    }


def describe(program: Program, result: FixResult) -> dict[str, Any]:
    found = result.found
    step_s = found.facts.step_s
    rows = [row(tried, step_s) for tried in found.tried]
    compiled = [r for r in rows if r["fix"] in COMPILED and r["verdict"] in TOLD]
    plain = [r["speedup"]["median"] for r in compiled if r["fix"] in PLAIN_MODES]
    fastest = max(plain, default=None)
    return {
        "name": program.name,
        "step_s": step_s,
        "regime": found.diagnosis.regime,
        "null": found.null.ratio._asdict() if found.null is not None else None,
        "quiet": found.null.quiet if found.null is not None else None,
        "why_not": {
            name: result.ruled_out[name] for name in program.fixed_by if name in result.ruled_out
        },
        "best": list(found.best.fixes) if found.best is not None else [],
        "best_speedup": result.speedup,
        "best_plain_compile_speedup": fastest,
        "best_compile_speedup": max((r["speedup"]["median"] for r in compiled), default=None),
        "fixes": rows,
        "combinations": [
            {"fixes": t.fixes, "verdict": t.verdict, "speedup": _ratio(t)}
            for t in found.combinations
        ],
        "notices": found.notices,
    }


def row(tried: Any, step_s: float) -> dict[str, Any]:
    prospect, trial = tried.prospect, tried.trial
    saved = None
    if trial is not None and trial.before_s and trial.after_s:
        # Against the step of the same turns; scaled to the step that was diagnosed.
        saved = 1.0 - trial.after_s / trial.before_s
    return {
        "fix": tried.fix.name,
        "low": prospect.low_s / step_s,
        "expected": prospect.expected_s / step_s,
        "high": prospect.high_s / step_s,
        "verdict": None if trial is None else trial.verdict,
        "reason": tried.reason if trial is None else trial.reason,
        "speedup": None if trial is None else _ratio(trial),
        "saved": saved,
        "compile_s": None if trial is None else trial.compile_s,
    }


def _ratio(trial: Any) -> dict[str, float] | None:
    return None if trial.speedup is None else trial.speedup._asdict()


def mended(program: Program) -> dict[str, float]:
    """The author's own remedy against the program, in turns in this process."""
    torch.set_num_threads(program.threads)
    steps = []
    for name in (program.name, program.mended):
        made = load_function(f"{HERE / 'programs.py'}:{name}")
        steps.append(made.step if isinstance(made, Workload) else made)
    turns = time_interleaved({"flawed": steps[0], "mended": steps[1]}, rounds=20, block_s=0.02)
    return ratio_interval(turns["flawed"].seconds, turns["mended"].seconds)._asdict()


def report(programs: list[dict[str, Any]]) -> dict[str, Any]:
    good = [p for p in programs if "error" not in p]
    flawed = [p for p in good if p["flaw"]]
    compared = [p for p in good if p["no_slower_than_compile"] is not None]
    rows = [r for p in good for r in p["fixes"] if r["saved"] is not None]
    return {
        "versions": {
            "gobrrr": gobrrr.__version__, "torch": torch.__version__,
            "python": platform.python_version(), "machine": platform.processor() or "",
        },
        "settings": {"threads": 1, "tolerance": TOLERANCE, "tie": TIE},
        "summary": {
            "programs": len(programs),
            "errors": {p["name"]: p["error"] for p in programs if "error" in p},
            "with_a_known_flaw": len(flawed),
            "flaw_ranked_first": sum(p["rank"] == 1 for p in flawed),
            "flaw_ranked_in_first_three": sum((p["rank"] or 99) <= 3 for p in flawed),
            "flaw_ruled_out": [p["name"] for p in flawed if p["rank"] is None],
            "flaw_verified": sum(p["verified"] for p in flawed),
            "flaw_clear_of_the_null": sum(_clear(p) for p in flawed),
            "too_noisy": [p["name"] for p in good if p["quiet"] is False],
            "slower_than_the_original": sum(p["best_speedup"] < 1.0 for p in good),
            "compared_with_compile": len(compared),
            "no_slower_than_compile": sum(p["no_slower_than_compile"] for p in compared),
            "faster_than_compile": sum(p["faster_than_compile"] for p in compared),
            "prediction_error": _errors([r for r in rows if r["verdict"] in TOLD]),
            "prediction_error_noisy_too": _errors(
                [r for r in rows if r["verdict"] in (*TOLD, "incomparable")]
            ),
            "mended_by_hand": {p["name"]: p["mended"] for p in good if "mended" in p},
        },
        "programs": programs,
    }  # fmt: skip


def _clear(program: dict[str, Any]) -> bool:
    """Whether a mending fix's interval lies above the null's, however wide that is."""
    null = program["null"]
    return null is not None and any(
        r["speedup"] is not None and r["speedup"]["low"] > max(1.0, null["high"])
        and r["verdict"] in (*TOLD, "incomparable")
        for r in program["fixes"] if r["fix"] in program["fixed_by"]
    )  # fmt: skip


def _errors(rows: list[dict[str, Any]]) -> dict[str, float] | None:
    """|predicted - measured saving| in parts of the step, over tried fixes."""
    if not rows:
        return None
    errors = sorted(abs(r["expected"] - r["saved"]) for r in rows)
    inside = [r["low"] - TIE <= r["saved"] <= r["high"] + TIE for r in rows]
    return {
        "n": len(errors),
        "median": median(errors),
        "within_10_percent": sum(e <= 0.10 for e in errors) / len(errors),
        "within_25_percent": sum(e <= 0.25 for e in errors) / len(errors),
        "p90": errors[int(0.9 * (len(errors) - 1))],
        "worst": errors[-1],
        "inside_low_to_high": sum(inside) / len(inside),
    }


def one_line(p: dict[str, Any]) -> str:
    if "error" in p:
        return f"{p['name']}: {p['error']}"
    tried = ", ".join(
        f"{r['fix']} {r['expected']:+.2f}/" + (f"{r['saved']:+.2f}" if r["saved"] is not None
                                               else "-") + f" {(r['verdict'] or 'untried')[:6]}"
        for r in p["fixes"]
    )  # fmt: skip
    return (
        f"{p['name']}: rank {p['rank']}, verified {p['verified']}, best {'+'.join(p['best'])} "
        f"{p['best_speedup']:.2f}x, compile {p['best_compile_speedup']}, quiet {p['quiet']}, "
        f"{p['took_s']:.0f} s | {tried}"
    )


if __name__ == "__main__":
    main()
