"""What gobrrr costs the program it looks at: while it times, and after it has left.

Runs ``loop.py`` with and without gobrrr, alternately, in fresh processes. The loop reports its own
step times; those while gobrrr was timing plain steps and those after it had left are compared with
the same steps of the run without it, as ratios of medians with a bootstrap interval over pairs.
Processes differ from each other by more than gobrrr costs, so ``interleaved.py`` also compares
blocks of steps in turns within one process.

    python benchmarks/own_cost/run.py --out benchmarks/results/own_cost_<hardware>_<date>.json
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gobrrr.devices import identify
from gobrrr.measure import ratio_interval

TOPIC = "gobrrr's own cost: step time with gobrrr over step time without"
LOOP = Path(__file__).with_name("loop.py")
# warm-up 5, recorded 2, timed 10, profiled 8, timed 110, sampled 3: then gobrrr is gone.
WARMUP, TIMED, STEPS = 5, 120, 260
SECOND_BLOCK = slice(WARMUP + 2 + 10 + 8 + 1, WARMUP + 2 + TIMED + 8 - 1)
AFTER = slice(WARMUP + 2 + TIMED + 8 + 3 + 10, None)


def run(size: int, with_gobrrr: bool) -> list[float]:
    program = [str(LOOP), str(size), str(STEPS)]
    if not with_gobrrr:
        command = [sys.executable, *program]
        return json.loads(subprocess.check_output(command, text=True))["steps_s"]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "d.json"
        command = [
            sys.executable, "-m", "gobrrr", "run", "--quiet", "--warmup", str(WARMUP), "--steps",
            str(TIMED), "--json", str(out), *program,
        ]  # fmt: skip
        text = subprocess.check_output(command, text=True)
    return json.loads(text.splitlines()[0])["steps_s"]


def demo_seconds() -> float:
    """The whole demo, start of the interpreter included, with cached ceilings."""
    root = LOOP.parents[2]
    command = [
        sys.executable, "-m", "gobrrr", "run", "--quiet", "examples/train_gpt.py", "--steps", "60",
    ]  # fmt: skip
    begin = time.perf_counter()
    subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def in_turns() -> list[dict[str, Any]]:
    """Blocks of steps with and without gobrrr within one process, at two step lengths."""
    rows = []
    for size in (64, 256):
        command = [sys.executable, str(LOOP.with_name("interleaved.py")), str(size), "300"]
        rows.append(json.loads(subprocess.check_output(command, text=True)))
        print(rows[-1], flush=True)
    return rows


def many_ops(what: str) -> dict[str, float | str]:
    """Time and memory of a step of very many ops, in a process of its own."""
    command = [sys.executable, str(LOOP.with_name("many_ops.py")), what]
    found: dict[str, float | str] = json.loads(subprocess.check_output(command, text=True))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--in-turns", action="store_true", help="remake only those rows of --out")
    options = parser.parse_args()
    if options.in_turns:
        result = {
            "topic": TOPIC,
            "hardware": identify().name,
            "versions": {"python": platform.python_version()},
            "rows": [],
        }
        if options.out.exists():
            result = json.loads(options.out.read_text())
        kept = [row for row in result["rows"] if "blocks" not in row]
        result["rows"] = kept + in_turns()
        options.out.write_text(json.dumps(result, indent=1) + "\n")
        return
    rows = []
    for size in (256, 1024):
        pairs: dict[str, list[list[float]]] = {"while timing": [[], []], "after leaving": [[], []]}
        for _ in range(options.pairs):
            plain, watched = run(size, False), run(size, True)
            for name, part in (("while timing", SECOND_BLOCK), ("after leaving", AFTER)):
                pairs[name][0].append(statistics.median(plain[part]))
                pairs[name][1].append(statistics.median(watched[part]))
        for name, (before, after) in pairs.items():
            middle, low, high = ratio_interval(after, before)
            rows.append(
                {"width": size, "when": name, "step_s": statistics.median(before),
                 "ratio": middle, "low": low, "high": high}
            )  # fmt: skip
            print(rows[-1], flush=True)
    rows += in_turns()
    result = {
        "topic": TOPIC,
        "hardware": identify().name,
        "versions": {"python": platform.python_version()},
        "rows": rows,
        "many_ops": many_ops("diagnose"),
        "many_ops_predicted": many_ops("predict"),
        "demo_s": demo_seconds(),
    }
    print(result["many_ops"], result["many_ops_predicted"], result["demo_s"])
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
