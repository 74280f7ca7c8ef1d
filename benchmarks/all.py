"""Run the benchmarks; a failure of one does not keep the others from running.

    python benchmarks/all.py                  # all, one after the other, into benchmarks/results
    python benchmarks/all.py --only spikes
    python benchmarks/all.py --quick          # all with tiny sizes, one thread each, several at a
                                              # time, figures not kept; what takes longer than ten
                                              # minutes in all (--limit-minutes) fails

Each takes ``--out FILE`` and ``--quick``. Ends with a table of them, and with 1 if one failed. One
that needs what is not here (a GPU, recorded traces, a browser) says so and is listed as skipped.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.command import RESULTS, SKIPPED  # noqa: E402

# Longest time of all benchmarks together with --quick, and the share of it that one may take.
QUICK_MINUTES, ONE_OF_ALL = 10.0, 0.4
# Quick ones run beside each other, so many at most.
MOST_AT_A_TIME = 4
# The first one measures the machine's ceilings where no file has them yet: nothing runs beside it.
ALONE = "ceilings"
# Between the request to end and the end, in seconds: for tidying up.
GRACE_S = 10.0
# Scripts with another name than ``run.py``, relative to ``benchmarks``.
FURTHER = {"breadth_live": "breadth/live.py", "gpu": "gpu/run_all.py"}
# What runs now.
_running: set[subprocess.Popen[bytes]] = set()
# Parent and start of a process, which tell it from a later one of its number.
Stat = tuple[str, str]


@dataclass(frozen=True)
class Limit:
    """How long quick benchmarks may take, in seconds from when this was made."""

    all_s: float = 60 * QUICK_MINUTES
    begun: float = field(default_factory=time.monotonic)

    @property
    def one_s(self) -> float:
        """The longest of one benchmark."""
        return ONE_OF_ALL * self.all_s

    @property
    def left_s(self) -> float:
        """What is left for all together; not above 0 when it is over."""
        return self.all_s - (time.monotonic() - self.begun)


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


def run(topic: str, out: Path, limit: Limit | None = None) -> Outcome:
    """One benchmark in a process of its own; a quick one if it has a limit, at which it ends.

    What a quick one prints is shown only if it fails.
    """
    left_s = limit.left_s if limit else 0.0
    if limit and left_s <= 0:
        said = f"not run: {limit.all_s:.0f} s for all benchmarks together were over"
        return Outcome(topic, "failed", 0.0, said)
    command = [sys.executable, str(topics()[topic]), "--out", str(out)]
    if limit:
        command.append("--quick")
    # What is imported is the code beside this file, not what happens to be installed.
    paths = [str(ROOT / "src"), str(ROOT)]
    if "PYTHONPATH" in os.environ:
        paths.append(os.environ["PYTHONPATH"])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    if limit:
        # Two threads that wait for each other on a busy machine burn both processors meanwhile.
        environment.setdefault("OMP_NUM_THREADS", "1")
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+") as errors, tempfile.TemporaryFile("w+") as printed:
        # A session of its own: what a benchmark has started ends with it.
        child = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stderr=errors,
            stdout=printed if limit else None, start_new_session=True,
        )  # fmt: skip
        _running.add(child)
        try:
            code = child.wait(min(limit.one_s, left_s) if limit else None)
            state = {0: "done", SKIPPED: "skipped"}.get(code, "failed")
        except subprocess.TimeoutExpired:
            assert limit is not None
            state = "failed"
            end(child)
            errors.seek(0, os.SEEK_END)
            said = f"it took longer than {min(limit.one_s, left_s):.0f} s"
            if left_s < limit.one_s:
                said += f", what was left of {limit.all_s:.0f} s for all benchmarks together"
            errors.write(f"\n{said}")
        finally:
            # Whatever ended the wait, Ctrl-C too: it does not go on, nor what it leaves behind.
            end(child)
            _running.discard(child)
        text = _all_of(errors)
        if state == "failed":
            print(_all_of(printed)[-4000:] + text[-4000:], file=sys.stderr, flush=True)
    lines = text.strip().splitlines()
    return Outcome(topic, state, time.monotonic() - begin, lines[-1] if lines else "")


def _all_of(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def end(child: subprocess.Popen[bytes]) -> None:
    """Ends a benchmark, if it still runs, and all that it has started.

    It is asked first, as by Ctrl-C, so that it can take back what it has set up on the machine.
    Where sessions do not exist (on Windows) it alone is ended, at once.
    """
    if not hasattr(os, "killpg"):
        child.kill()
        child.wait()
        return
    started: list[tuple[int, Stat]] = []
    if child.returncode is None:
        # Launchers of several ranks give each a session of its own.
        started = _started_by(child.pid)
        child.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_S)
    for pid, stat in started:
        if (_stat(pid) or ("", ""))[1] == stat[1]:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    # Of the group, whatever its leader has left.
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _stat(pid: int) -> Stat | None:
    """``None`` where there is no such process, or no ``/proc``."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[1], fields[19]


def _started_by(pid: int) -> list[tuple[int, Stat]]:
    """The children of a process and theirs; none where ``/proc`` does not tell."""
    everybody = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    known = [(each, stat) for each in everybody if (stat := _stat(each)) is not None]
    found: list[tuple[int, Stat]] = []
    parents = {str(pid)}
    while parents:
        children = [(each, stat) for each, stat in known if stat[0] in parents]
        found += children
        parents = {str(each) for each, _ in children}
    return found


def summary(outcomes: Sequence[Outcome], took_s: float) -> str:
    """A line for each benchmark, the failed ones last; how long all together took."""
    order = ("done", "skipped", "failed")
    lines = []
    for outcome in sorted(outcomes, key=lambda o: order.index(o.state)):
        line = f"{outcome.state:8} {outcome.topic:23} {outcome.seconds:7.1f} s"
        if outcome.state != "done":
            line += f"  {outcome.said.removeprefix('skipped: ')}"
        lines.append(line)
    lines.append(f"{'total':8} {len(outcomes):<23} {took_s:7.1f} s")
    return "\n".join(lines)


def device_name() -> str:
    """The processor's name as part of a file name: ``amd-epyc``."""
    from gobrrr.devices import identify

    return re.sub(r"[^a-z0-9]+", "-", identify("cpu").name.lower()).strip("-")


def processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_quickly(outs: dict[str, Path], limit: Limit) -> list[Outcome]:
    """Quick benchmarks, several at a time; topic -> where its result goes."""

    def one(topic: str) -> Outcome:
        outcome = run(topic, outs[topic], limit)
        print(f"{outcome.state:8} {topic:23} {outcome.seconds:7.1f} s", flush=True)
        return outcome

    outcomes = [one(topic) for topic in outs if topic == ALONE]
    with ThreadPoolExecutor(min(MOST_AT_A_TIME, processors())) as pool:
        waiting = [pool.submit(one, topic) for topic in outs if topic != ALONE]
        try:
            outcomes += [future.result() for future in waiting]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in tuple(_running):
                end(child)
            raise
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", choices=topics(), help="may be repeated")
    parser.add_argument("--quick", action="store_true", help="tiny sizes; figures are not kept")
    parser.add_argument(
        "--limit-minutes", type=float, default=QUICK_MINUTES, metavar="N",
        help=f"longest time of all together with --quick, {ONE_OF_ALL:.0%}"
        f"% of it for one (default: {QUICK_MINUTES:g})",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, help="the folder of results")
    given = parser.parse_args()
    temporary = tempfile.TemporaryDirectory(prefix="gobrrr-bench-") if given.quick else None
    folder = (given.out or (Path(temporary.name) if temporary else RESULTS)).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    ending = f"{device_name()}_{datetime.now(timezone.utc).date().isoformat()}.json"
    outs = {topic: folder / f"{topic}_{ending}" for topic in given.only or topics()}
    begin = time.monotonic()
    if given.quick:
        outcomes = run_quickly(outs, Limit(60 * given.limit_minutes))
    else:
        outcomes = []
        for topic, out in outs.items():
            print(f"== {topic} -> {out.name}", flush=True)
            outcomes.append(run(topic, out))
    if temporary:
        temporary.cleanup()
    print(summary(outcomes, time.monotonic() - begin))
    return int(any(outcome.state == "failed" for outcome in outcomes))


if __name__ == "__main__":
    # A request to end ends what runs, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # A shell lets what it runs in the background ignore Ctrl-C, and that is inherited.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())
