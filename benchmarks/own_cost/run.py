"""What gobrrr costs the program it looks at: while it times, and after it has left.

Runs ``loop.py`` with and without gobrrr, alternately, in fresh processes. The loop reports its own
step times; those while gobrrr was timing plain steps and those after it had left are compared with
the same steps of the run without it, as ratios of medians with a bootstrap interval over pairs.
Processes differ from each other by more than gobrrr costs, so ``interleaved.py`` also compares
blocks of steps in turns within one process.

    PYTHONPATH=. python benchmarks/own_cost/run.py --out FILE
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.command import Record, parser

from gobrrr.measure import ratio_interval

LOOP = Path(__file__).with_name("loop.py")
# warm-up 5, recorded 2, timed 10, profiled 8, timed 110, sampled 3: then gobrrr is gone.
WARMUP, BEFORE, PROFILED, SAMPLED = 5, 10, 8, 3
# Steps that gobrrr times, and of the loop; with --quick.
TIMED, STEPS, QUICK_TIMED, QUICK_STEPS = 120, 260, 20, 60
WIDTHS, QUICK_WIDTHS = (256, 1024), (64,)
BLOCKS, QUICK_BLOCKS = 300, 4
MANY_OPS, QUICK_OPS = 200_000, 500
# Ops a step and steps of a script of many small ops, and events of one profile.
SMALL_OPS, QUICK_SMALL_OPS = (20_000, 95), (500, 60)
EVENTS, QUICK_EVENTS = 200_000, 2_000
# With --quick the demo is diagnosed from as few steps as that takes.
FEWEST = ("--warmup", "1", "--steps", "2")


def parts(timed: int) -> dict[str, slice]:
    """Which of the loop's steps are the second timed block, and which come when gobrrr is gone."""
    before = WARMUP + 2 + PROFILED
    return {
        "while timing": slice(before + BEFORE + 1, before + timed - 1),
        "after leaving": slice(before + timed + SAMPLED + 10, None),
    }


def run(size: int, steps: int, timed: int = 0) -> list[float]:
    """Seconds of a loop's steps; with ``timed``, under gobrrr, which times so many of them."""
    program = [str(LOOP), str(size), str(steps)]
    if not timed:
        command = [sys.executable, *program]
        return json.loads(subprocess.check_output(command, text=True))["steps_s"]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "d.json"
        command = [
            sys.executable, "-m", "gobrrr", "run", "--quiet", "--warmup", str(WARMUP), "--steps",
            str(timed), "--json", str(out), *program,
        ]  # fmt: skip
        text = subprocess.check_output(command, text=True)
    # The report stands before it: it is printed as soon as the steps are measured.
    line = next(line for line in text.splitlines() if line.startswith("{"))
    return json.loads(line)["steps_s"]


def demo_seconds(steps: int, *options: str) -> float:
    """The whole demo, start of the interpreter included, with cached ceilings."""
    root = LOOP.parents[2]
    command = [
        sys.executable, "-m", "gobrrr", "run", "--quiet", *options, "examples/train_gpt.py",
        "--steps", str(steps),
    ]  # fmt: skip
    begin = time.perf_counter()
    subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def in_turns(widths: Sequence[int], blocks: int) -> list[dict[str, Any]]:
    """Blocks of steps with and without gobrrr within one process, at two step lengths."""
    rows = []
    for size in widths:
        command = [sys.executable, str(LOOP.with_name("interleaved.py")), str(size), str(blocks)]
        rows.append(json.loads(subprocess.check_output(command, text=True)))
        print(rows[-1], flush=True)
    return rows


def many_ops(what: str, ops: int) -> dict[str, float | str]:
    """Time and memory of a step of very many ops, in a process of its own."""
    command = [sys.executable, str(LOOP.with_name("many_ops.py")), what, str(ops)]
    found: dict[str, float | str] = json.loads(subprocess.check_output(command, text=True))
    return found


def whole_run(*program: str) -> dict[str, float]:
    """Processor seconds and bytes of a program by itself, and of all of ``gobrrr run`` of it."""
    found: dict[str, float] = {}
    for name, command in (("alone", ()), ("watched", ("-m", "gobrrr", "run", "--quiet", "--stop"))):
        child = subprocess.Popen(
            [sys.executable, *command, *program],
            stdout=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        _, status, used = os.wait4(child.pid, 0)
        if status:
            raise SystemExit(f"{program[0]} failed {name}")
        found |= {
            f"{name}_s": used.ru_utime + used.ru_stime,
            f"{name}_bytes": used.ru_maxrss * 1024,
        }
    return found


def profile_events(events: int) -> dict[str, float]:
    """Seconds and bytes per 100,000 events of a profile, in a process of its own."""
    command = [sys.executable, str(LOOP.with_name("events.py")), str(events)]
    found: dict[str, float] = json.loads(subprocess.check_output(command, text=True))
    return found


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--pairs", type=int, default=8)
    made.add_argument("--in-turns", action="store_true", help="remake only those rows of --out")
    options = made.parse_args()
    quick = options.quick
    turns = ((64,), QUICK_BLOCKS) if quick else ((64, 256), BLOCKS)
    ops = QUICK_OPS if quick else MANY_OPS
    record = Record("own_cost", options)
    if options.in_turns:
        before = json.loads(options.out.read_text()) if options.out.exists() else {"rows": []}
        kept = [row for row in before["rows"] if "blocks" not in row]
        record.write({**before, **record.head, "rows": kept + in_turns(*turns)})
        return
    rows = []
    for size in QUICK_WIDTHS if quick else WIDTHS:
        timed, steps = (QUICK_TIMED, QUICK_STEPS) if quick else (TIMED, STEPS)
        pairs: dict[str, list[list[float]]] = {name: [[], []] for name in parts(timed)}
        for _ in range(1 if quick else options.pairs):
            plain, watched = run(size, steps), run(size, steps, timed)
            for name, part in parts(timed).items():
                pairs[name][0].append(statistics.median(plain[part]))
                pairs[name][1].append(statistics.median(watched[part]))
        for name, (before_s, after_s) in pairs.items():
            middle, low, high = ratio_interval(after_s, before_s)
            rows.append(
                {"width": size, "when": name, "step_s": statistics.median(before_s),
                 "ratio": middle, "low": low, "high": high}
            )  # fmt: skip
            print(rows[-1], flush=True)
    rows += in_turns(*turns)
    result = {
        "unit": "ratio: step time with gobrrr over step time without",
        "rows": rows,
        "many_ops": many_ops("diagnose", ops),
        "many_ops_predicted": many_ops("predict", ops),
        "small_ops": whole_run(
            str(LOOP.with_name("small_ops.py")),
            *map(str, QUICK_SMALL_OPS if quick else SMALL_OPS),
        ),
        "per_100000_events": profile_events(QUICK_EVENTS if quick else EVENTS),
        "demo_s": demo_seconds(20, *FEWEST) if quick else demo_seconds(60),
    }
    for name, figures in result.items():
        if name not in ("unit", "rows"):
            print(name, figures)
    record.write(result)


if __name__ == "__main__":
    main()
