"""The winner timed again: fresh processes, a clock that is not the search's, every compile mode."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
ROUNDS, TURN_S, START_S = 9, 0.08, 120.0
# Of a script; two processes of it differ by more than its steps do.
RUNS = 5
# Nearer to 1 than this two variants are tied: about what a program differs from itself by.
TIE = 0.03


@dataclass
class Process:
    """One variant, warm and waiting."""

    child: subprocess.Popen[str]

    def turn(self, steps: int) -> float:
        """Seconds per step."""
        assert self.child.stdin is not None and self.child.stdout is not None
        self.child.stdin.write(f"{steps}\n")
        self.child.stdin.flush()
        return float(self.child.stdout.readline())


def time_function(
    file: Path, name: str, mended: str, best: list[str], environment: dict[str, str], modes: bool
) -> dict[str, Any]:
    """Ratios original / variant over rounds in which every variant takes its turn."""
    wanted = {"original": ("original", name)}
    if best:
        wanted["best"] = (f"fixes:{','.join(best)}", name)
    if mended:
        wanted["mended"] = ("original", mended)
    for mode in MODES if modes else ():
        wanted[f"compile {mode}"] = (f"mode:{mode}", name)
    commands = {
        label: [str(HERE / "variants.py"), "function", str(file), function, variant]
        for label, (variant, function) in wanted.items()
    }
    return timed_together(commands, {"best": environment})


def timed_together(
    commands: dict[str, list[str]], environments: dict[str, dict[str, str]]
) -> dict[str, Any]:
    """All variants warm, then in turns; those that do not start are told under ``problems``."""
    # Two at a time: compilers take a processor each, and nothing is timed yet.
    with ThreadPoolExecutor(2) as pool:
        made = pool.map(lambda label: start(commands[label], environments.get(label, {})), commands)
        started = dict(zip(commands, made, strict=True))
    running = {label: p for label, p in started.items() if isinstance(p, Process)}
    problems = {label: why for label, why in started.items() if isinstance(why, str)}
    try:
        return in_turns(running) | {"problems": problems}
    finally:
        for process in running.values():
            process.child.kill()
            process.child.wait()


def start(command: list[str], environment: dict[str, str]) -> Process | str:
    """A variant in a process of its own, warm; or why it is not."""
    child = subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env=os.environ | environment,
    )  # fmt: skip
    assert child.stdout is not None and child.stderr is not None
    # A compiler that unrolls a long loop takes minutes.
    limit = threading.Timer(START_S, child.kill)
    limit.start()
    ready = child.stdout.readline() == "ready\n"
    limit.cancel()
    if ready:
        return Process(child)
    child.kill()
    said = child.stderr.read().strip().splitlines()
    return said[-1][:300] if said else f"not ready after {START_S:.0f} s"


def in_turns(running: dict[str, Process]) -> dict[str, Any]:
    """Seconds per step of each, and the ratios to ``original``, over rounds in random order."""
    if "original" not in running:
        return {"ratios": {}}
    steps = {label: max(1, round(TURN_S / max(p.turn(1), 1e-7))) for label, p in running.items()}
    seconds: dict[str, list[float]] = {label: [] for label in running}
    for number in range(ROUNDS):
        labels = list(running)
        random.Random(number).shuffle(labels)
        for label in labels:
            seconds[label].append(running[label].turn(steps[label]))
    return {
        "original_s": median(seconds["original"]),
        "ratios": {
            label: ratio(seconds["original"], of_label)
            for label, of_label in seconds.items()
            if label != "original"
        },
        "seconds": seconds,
    }


def time_script(
    file: Path, mended: str, best: list[str], written: Path | None, step_s: float
) -> dict[str, Any]:
    """The same for a script, each variant run ``RUNS`` times in turn."""
    steps = max(12, min(3000, round(2.0 / step_s)))
    wanted: dict[str, tuple[Path, str]] = {"original": (file, "original")}
    if best:
        by_fixes = (file, f"fixes:{','.join(best)}")
        wanted["best"] = by_fixes if written is None else (written, "original")
    if mended:
        wanted["mended"] = (file.with_name(f"{mended}.py"), "original")
    wanted["compile default"] = (file, "fixes:compile")
    wanted["compile max-autotune"] = (file, "fixes:compile_max_autotune")
    seconds: dict[str, list[float]] = {label: [] for label in wanted}
    problems: dict[str, str] = {}
    for number in range(RUNS):
        # Whoever comes first or last in a round has another machine.
        labels = list(wanted)
        random.Random(number).shuffle(labels)
        for label in labels:
            path, variant = wanted[label]
            if label in problems:
                continue
            command = [sys.executable, str(HERE / "variants.py"), "script", str(path), str(steps)]
            done = subprocess.run(
                [*command, variant],
                capture_output=True,
                text=True,
                timeout=3 * START_S,
                check=False,
            )
            if done.returncode:
                problems[label] = (done.stderr.strip().splitlines() or ["it ended"])[-1][:300]
            else:
                seconds[label].append(float(done.stdout.strip().splitlines()[-1]))
    if "original" in problems:
        return {"ratios": {}, "problems": problems}
    return {
        "original_s": median(seconds["original"]),
        "ratios": {
            label: ratio(seconds["original"], of_label)
            for label, of_label in seconds.items()
            if label != "original" and label not in problems
        },
        "seconds": seconds,
        "problems": problems,
    }


def ratio(before: list[float], after: list[float]) -> dict[str, float]:
    """Median of the rounds' ratios with a 95 % bootstrap interval of that median."""
    each = [a / b for a, b in zip(before, after, strict=True)]
    drawn = random.Random(0)
    medians = sorted(median(drawn.choices(each, k=len(each))) for _ in range(1000))
    return {"median": median(each), "low": medians[25], "high": medians[974]}


def outcome(made: dict[str, float] | None, other: dict[str, float] | None = None) -> str:
    """``win``, ``loss`` or ``tie`` of one ratio against 1 or another; ``none`` where unknown."""
    if made is None:
        return "none"
    of_other = 1.0 if other is None else other["median"]
    share = made["median"] / of_other
    return "win" if share > 1 + TIE else "loss" if share < 1 / (1 + TIE) else "tie"
