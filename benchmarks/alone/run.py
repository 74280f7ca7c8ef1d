"""Step times that gobrrr tells against those of the same scripts alone, in processes of their own.

Twelve scripts keep their own clock (``scripts/step_clock.py``). Each runs alone and under ``gobrrr
run`` in turns, pinned to one processor; malloc's state differs from process to process, so each
side is the median of its turns. ``told``: the step of the report over the step alone. ``while
timing`` and ``after``: the script's own clock under gobrrr over the same steps alone, over the
steps before anything is attached and over the last quarter, when gobrrr has left.

    python benchmarks/alone/run.py --out FILE [--turns 7] [--only conv_classifier]
"""

from __future__ import annotations

import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.command import Record, parser  # noqa: E402

SCRIPTS = Path(__file__).with_name("scripts")
# Steps of varying sizes are told as means.
MEANS = ("varying_lengths",)
# Steps that the clock leaves out at first, and those before gobrrr attaches anything.
WARM, BEFORE_ATTACHED = 20, slice(4, 14)
TURNS, QUICK_TURNS = 7, 1
QUICK = ("tiny_policy",)
LIMIT_S = 600.0
RESAMPLES = 2000


def names() -> list[str]:
    """The scripts, by name."""
    return sorted(path.stem for path in SCRIPTS.glob("*.py") if path.stem != "step_clock")


def run(name: str, diagnosed: bool, processor: int) -> dict[str, Any]:
    """One process: the script's own clock and, if diagnosed, what gobrrr tells of its step."""
    with tempfile.TemporaryDirectory() as folder:
        clock, saved = Path(folder) / "clock.json", Path(folder) / "d.json"
        script = str(SCRIPTS / f"{name}.py")
        command = [sys.executable, script]
        if diagnosed:
            command = [
                sys.executable, "-m", "gobrrr", "run", "--quiet", "--json", str(saved), script,
            ]  # fmt: skip
        subprocess.run(
            command,
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=LIMIT_S,
            env={**os.environ, "OMP_NUM_THREADS": "1", "STEP_CLOCK": str(clock)},
            preexec_fn=lambda: os.sched_setaffinity(0, {processor}),
        )
        seen = json.loads(clock.read_text())
        told = json.loads(saved.read_text()) if diagnosed else None
    ended, faults = seen["ended_ns"], seen["faults"]
    lengths = [(b - a) * 1e-9 for a, b in itertools.pairwise(ended)]
    by_step = [b - a for a, b in itertools.pairwise(faults)]
    usual = statistics.mean if name in MEANS else statistics.median
    found = {
        "step_s": usual(lengths[WARM:]),
        "before_attached_s": usual(lengths[BEFORE_ATTACHED]),
        "last_s": usual(lengths[-len(lengths) // 4 :]),
        "faults": usual(by_step[WARM:]),
    }
    if told is not None:
        step = told["step"]["time_s"]
        found |= {
            "told_s": step["mean" if told["step"]["basis"] == "mean" else "median"],
            "told_faults": told["counters"].get("page_faults"),
            "notices": [text[:160] for text in told["notices"]],
        }
    return found


def interval(above: Sequence[float], below: Sequence[float]) -> dict[str, float]:
    """Ratio of the medians of two sides, with a 95 % bootstrap interval over processes."""
    draw = random.Random(0)
    ratios = sorted(
        statistics.median(draw.choices(above, k=len(above)))
        / statistics.median(draw.choices(below, k=len(below)))
        for _ in range(RESAMPLES)
    )
    return {
        "ratio": statistics.median(above) / statistics.median(below),
        "low": ratios[int(0.025 * RESAMPLES)],
        "high": ratios[int(0.975 * RESAMPLES)],
    }


def row_of(name: str, alone: list[dict[str, Any]], under: list[dict[str, Any]]) -> dict[str, Any]:
    """One script's row."""

    def of(runs: list[dict[str, Any]], key: str) -> list[float]:
        return [each[key] for each in runs]

    return {
        "script": name,
        "alone_s": statistics.median(of(alone, "step_s")),
        "alone_faults": statistics.median(of(alone, "faults")),
        "told_faults": [each["told_faults"] for each in under],
        "told": interval(of(under, "told_s"), of(alone, "step_s")),
        "while_timing": interval(of(under, "before_attached_s"), of(alone, "before_attached_s")),
        "after": interval(of(under, "last_s"), of(alone, "last_s")),
        "alone_runs": alone,
        "under_runs": under,
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Median and worst of each ratio."""
    found = {}
    for key in ("told", "while_timing", "after"):
        ratios = [row[key]["ratio"] for row in rows]
        found[key] = {
            "median": statistics.median(ratios), "least": min(ratios), "most": max(ratios),
        }  # fmt: skip
    return {**found, "scripts": len(rows)}


def main() -> None:
    """Takes the turns, prints a line for each script, writes the file after each turn."""
    options = parser(__doc__)
    options.add_argument("--turns", type=int, default=TURNS, metavar="N")
    options.add_argument("--only", action="append", metavar="SCRIPT", choices=names())
    given = options.parse_args()
    record = Record("alone", given)
    chosen = given.only or (list(QUICK) if given.quick else names())
    turns = QUICK_TURNS if given.quick else given.turns
    processor = max(os.sched_getaffinity(0))
    # The first measures the ceilings, where no file has them yet.
    run(chosen[0], True, processor)
    alone: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
    under: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
    rows: list[dict[str, Any]] = []
    for turn in range(turns):
        for name in chosen:
            # Who goes first changes from turn to turn.
            for diagnosed in (False, True) if turn % 2 == 0 else (True, False):
                (under if diagnosed else alone)[name].append(run(name, diagnosed, processor))
        rows = [row_of(name, alone[name], under[name]) for name in chosen]
        record.write({"turns": turn + 1, "rows": rows, "summary": summary(rows)})
        print(f"turn {turn + 1} of {turns}", flush=True)
    for row in rows:
        ratios = "  ".join(
            f"{key} {row[key]['ratio']:.3f} ({row[key]['low']:.3f} to {row[key]['high']:.3f})"
            for key in ("told", "while_timing", "after")
        )
        print(f"{row['script']:<18} {row['alone_s'] * 1e3:8.3f} ms  {ratios}")
    print(json.dumps(summary(rows), indent=1))


if __name__ == "__main__":
    main()
