"""What a whole diagnosis costs: seconds and bytes of programs whose steps are many ops or calls.

The cost to a step while it is timed is in ``benchmarks/alone``, between processes.

    PYTHONPATH=. python benchmarks/own_cost/run.py --out FILE
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.command import Record, parser

HERE = Path(__file__).parent
MANY_OPS, QUICK_OPS = 200_000, 500
# Ops a step and steps of a script of many small ops, and events of one profile.
SMALL_OPS, QUICK_SMALL_OPS = (20_000, 95), (500, 60)
EVENTS, QUICK_EVENTS = 200_000, 2_000
# Calls of a module in a step.
CALLS, QUICK_CALLS = (300, 1000), (10,)
# With --quick the demo is diagnosed from as few steps as that takes.
FEWEST = ("--warmup", "1", "--steps", "2")


def demo_seconds(steps: int, *options: str) -> float:
    """The whole demo, start of the interpreter included, with cached ceilings."""
    root = HERE.parents[1]
    command = [
        sys.executable, "-m", "gobrrr", "run", "--quiet", *options, "examples/train_gpt.py",
        "--steps", str(steps),
    ]  # fmt: skip
    begin = time.perf_counter()
    subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def many_ops(what: str, ops: int) -> dict[str, float | str]:
    """Time and memory of a step of very many ops, in a process of its own."""
    command = [sys.executable, str(HERE / "many_ops.py"), what, str(ops)]
    found: dict[str, float | str] = json.loads(subprocess.check_output(command, text=True))
    return found


def whole_run(*program: str) -> dict[str, float]:
    """Seconds and bytes of a program by itself, and of all of ``gobrrr run`` of it.

    ``_s`` are of the processor, ``_wall_s`` of the wall.
    """
    found: dict[str, float] = {}
    for name, command in (("alone", ()), ("watched", ("-m", "gobrrr", "run", "--quiet", "--stop"))):
        begin = time.perf_counter()
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
            f"{name}_wall_s": time.perf_counter() - begin,
            f"{name}_bytes": used.ru_maxrss * 1024,
        }
    return found


def profile_events(events: int) -> dict[str, float]:
    """Seconds and bytes per 100,000 events of a profile, in a process of its own."""
    command = [sys.executable, str(HERE / "events.py"), str(events)]
    found: dict[str, float] = json.loads(subprocess.check_output(command, text=True))
    return found


def main() -> None:
    """Measures each, prints it, writes the file."""
    options = parser(__doc__).parse_args()
    quick = options.quick
    record = Record("own_cost", options)
    ops = QUICK_OPS if quick else MANY_OPS
    small = map(str, QUICK_SMALL_OPS if quick else SMALL_OPS)
    result: dict[str, Any] = {
        "many_ops": many_ops("diagnose", ops),
        "many_ops_predicted": many_ops("predict", ops),
        "small_ops": whole_run(str(HERE / "small_ops.py"), *small),
        "module_calls": {
            str(calls): whole_run(str(HERE / "module_calls.py"), str(calls))
            for calls in (QUICK_CALLS if quick else CALLS)
        },
        "per_100000_events": profile_events(QUICK_EVENTS if quick else EVENTS),
        "demo_s": demo_seconds(20, *FEWEST) if quick else demo_seconds(60),
    }
    for name, figures in result.items():
        print(name, figures)
    record.write(result)


if __name__ == "__main__":
    main()
