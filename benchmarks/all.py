"""Run the benchmarks one after the other; a failure of one does not keep the others from running.

    python benchmarks/all.py                  # all, into benchmarks/results
    python benchmarks/all.py --only spikes
    python benchmarks/all.py --quick          # all with tiny sizes, one thread, figures not kept,
                                              # in ten minutes; what takes longer fails

Each takes ``--out FILE`` and ``--quick``. Ends with a table of them, and with 1 if one failed. One
that needs what is not here (a GPU, recorded traces, a browser) says so and is listed as skipped.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.command import RESULTS, SKIPPED  # noqa: E402

# Longest time of one benchmark with --quick, and of all together, in seconds.
QUICK_LIMIT_S = 240.0
QUICK_TOTAL_S = 600.0
# Scripts with another name than ``run.py``, relative to ``benchmarks``.
FURTHER = {"breadth_live": "breadth/live.py", "gpu": "gpu/run_all.py"}


@dataclass(frozen=True)
class Outcome:
    """How one benchmark ended: ``done``, ``skipped`` or ``failed``, and its last words."""

    topic: str
    state: str
    seconds: float
    said: str = ""


def topics() -> dict[str, Path]:
    """All benchmarks by name, with their scripts: every ``run.py``, and what is listed above."""
    scripts = {path.parent.name: path for path in ROOT.glob("benchmarks/*/run.py")}
    scripts |= {name: ROOT / "benchmarks" / path for name, path in FURTHER.items()}
    return {name: scripts[name] for name in sorted(scripts) if scripts[name].is_file()}


def run(topic: str, out: Path, quick: bool, left_s: float = math.inf) -> Outcome:
    """One benchmark in a process of its own; a quick one ends after ``left_s`` at the latest."""
    limit_s = min(QUICK_LIMIT_S, left_s)
    command = [sys.executable, str(topics()[topic]), "--out", str(out)]
    if quick:
        command.append("--quick")
    # What is imported is the code beside this file, not what happens to be installed.
    paths = [str(ROOT / "src"), str(ROOT)]
    if "PYTHONPATH" in os.environ:
        paths.append(os.environ["PYTHONPATH"])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    if quick:
        # Two threads that wait for each other on a busy machine burn both processors meanwhile.
        environment.setdefault("OMP_NUM_THREADS", "1")
    begin = time.monotonic()
    # Progress is shown as it comes; of what went wrong the last line is repeated at the end.
    with tempfile.TemporaryFile("w+") as errors:
        # A session of its own: what a benchmark has started ends with it.
        child = subprocess.Popen(
            command, cwd=ROOT, env=environment, stderr=errors, start_new_session=True
        )
        try:
            code = child.wait(limit_s if quick else None)
            state = {0: "done", SKIPPED: "skipped"}.get(code, "failed")
        except subprocess.TimeoutExpired:
            state = "failed"
            errors.seek(0, os.SEEK_END)
            said = f"it took longer than {limit_s:.0f} s"
            if left_s < QUICK_LIMIT_S:
                said += f", what was left of {QUICK_TOTAL_S:.0f} s for all benchmarks together"
            errors.write(f"\n{said}")
        finally:
            # Whatever ended the wait, Ctrl-C too: it does not go on.
            if child.returncode is None:
                _end(child)
        errors.seek(0)
        text = errors.read()
    if state == "failed":
        print(text[-4000:], file=sys.stderr)
    lines = text.strip().splitlines()
    return Outcome(topic, state, time.monotonic() - begin, lines[-1] if lines else "")


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends a benchmark and, where sessions exist (not on Windows), all that it has started."""
    if hasattr(os, "killpg"):
        os.killpg(child.pid, signal.SIGKILL)
    else:
        child.kill()
    child.wait()


def summary(outcomes: Sequence[Outcome]) -> str:
    """A line for each benchmark, the failed ones last."""
    order = ("done", "skipped", "failed")
    lines = []
    for outcome in sorted(outcomes, key=lambda o: order.index(o.state)):
        line = f"{outcome.state:8} {outcome.topic:23} {outcome.seconds:7.1f} s"
        if outcome.state != "done":
            line += f"  {outcome.said.removeprefix('skipped: ')}"
        lines.append(line)
    total = sum(outcome.seconds for outcome in outcomes)
    lines.append(f"{'total':8} {len(outcomes):<23} {total:7.1f} s")
    return "\n".join(lines)


def device_name() -> str:
    """The processor's name as part of a file name: ``amd-epyc``."""
    from gobrrr.devices import identify

    return re.sub(r"[^a-z0-9]+", "-", identify("cpu").name.lower()).strip("-")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", choices=topics(), help="may be repeated")
    parser.add_argument("--quick", action="store_true", help="tiny sizes; figures are not kept")
    parser.add_argument("--out", type=Path, help="the folder of results")
    given = parser.parse_args()
    temporary = tempfile.TemporaryDirectory(prefix="gobrrr-bench-") if given.quick else None
    folder = (given.out or (Path(temporary.name) if temporary else RESULTS)).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    end = f"{device_name()}_{datetime.now(timezone.utc).date().isoformat()}.json"
    outcomes = []
    begin = time.monotonic()
    for topic in given.only or topics():
        left_s = QUICK_TOTAL_S - (time.monotonic() - begin)
        if given.quick and left_s <= 0:
            said = f"not run: {QUICK_TOTAL_S:.0f} s for all benchmarks together were over"
            outcomes.append(Outcome(topic, "failed", 0.0, said))
            continue
        out = folder / f"{topic}_{end}"
        print(f"== {topic} -> {out.name}", flush=True)
        outcomes.append(run(topic, out, given.quick, left_s if given.quick else math.inf))
    if temporary:
        temporary.cleanup()
    print(summary(outcomes))
    return int(any(outcome.state == "failed" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
