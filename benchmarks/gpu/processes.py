"""Processes that a part starts: what a user would type, with its time, memory and last lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.command import ROOT
from benchmarks.gpu.clocks import NEEDS_CUDA, on_cuda
from benchmarks.gpu.setting import Setting

SCRIPTS = ROOT / "benchmarks" / "gpu" / "scripts"
GOBRRR = (sys.executable, "-m", "gobrrr", "run", "--quiet", "--no-batch-test")
LAST_LINES = 80
# Of a step's record all but what is drawn or a default.
OF_STEP = (
    "time_s", "kind", "what", "basis", "profiled_time_s", "profiler_cost_s", "host_scale",
    "kernel_scale", "samples_s", "profiled_steps", "varying", "seen",
)  # fmt: skip
OF_DIAGNOSIS = (
    "verdict", "regime", "close", "notices", "split", "mfu", "hfu", "counters", "device_time",
    "wall", "fixes", "ranks", "job",
)  # fmt: skip


class Child:
    """A process that runs; its temporary files lie in a folder of its own, its output in a file.

    Args:
        gated: it gets ready and waits until ``go`` before it computes (``scripts/step_clock.py``),
            so that its imports take place while another process runs.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, setting: Setting, *, gated: bool = False,
        clock: bool = False, environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.gate, self.clock, self._output = (folder / n for n in ("gate", "clock", "output"))
        self.temporary = folder / "t"
        self.temporary.mkdir(parents=True, exist_ok=True)
        path = [f"{ROOT}/src", str(ROOT), *map(os.path.abspath, _python_path())]
        more = {
            "PYTHONPATH": os.pathsep.join(path), "TMPDIR": str(self.temporary),
            "PYTHONUNBUFFERED": "1", "DEVICE": setting.device,
            # Little work of many processes, on whatever there is.
            **({"SMALL": "1", "OMP_NUM_THREADS": "1"} if setting.small else {}),
            **({"STEP_CLOCK": str(self.clock)} if clock else {}),
            **({"STEP_GATE": str(self.gate)} if gated else {}),
        }  # fmt: skip
        self._began = time.perf_counter()
        self._went: float | None = None if gated else self._began
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, env={**os.environ, **more, **(environment or {})},
            )  # fmt: skip

    def go(self) -> None:
        """A gated process may compute."""
        self._went = time.perf_counter()
        self.gate.touch()

    def end(self, limit_s: float) -> dict[str, Any]:
        """How it ended; a process that takes longer is asked to end, and then made to.

        ``wall_s`` is from its start; of a gated process without its wait at the gate, and ``None``
        where it has no clock. ``peak_rss_bytes``: of the largest of the process and those of its
        own that it waited for.
        """
        until = time.perf_counter() + limit_s
        gave_up, trace_bytes = False, 0
        while True:
            pid, status, used = os.wait4(self._process.pid, os.WNOHANG)
            if pid:
                break
            for file in self.temporary.glob("gobrrr-*/*.json*"):
                trace_bytes = max(trace_bytes, _size(file))
            if time.perf_counter() > until:
                self._process.send_signal(signal.SIGKILL if gave_up else signal.SIGTERM)
                gave_up, until = True, time.perf_counter() + 3.0
            time.sleep(0.02)
        now = time.perf_counter()
        self._process.returncode = os.waitstatus_to_exitcode(status)
        steps = json.loads(self.clock.read_text()) if self.clock.is_file() else None
        wall_s: float | None = now - self._began
        if self._went != self._began:
            wall_s = None
            if self._went is not None and steps is not None:
                wall_s = now - self._went + steps["ready_s"]
        return {
            "exit": self._process.returncode,
            "gave_up": gave_up,
            "wall_s": wall_s,
            "peak_rss_bytes": used.ru_maxrss * 1024,
            "user_s": used.ru_utime,
            "system_s": used.ru_stime,
            "largest_trace_bytes": trace_bytes or None,
            "clock": steps,
            "last_lines": last_lines(self._output, self.folder),
        }


def _python_path() -> list[str]:
    return [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def last_lines(file: Path, folder: Path) -> list[str]:
    """The end of what a process printed, without the folders of the machine."""
    text = file.read_text(errors="replace") if file.is_file() else ""
    lines = text.replace("\r", "\n").splitlines()[-LAST_LINES:]
    return [without_folders(line[:2000], folder) for line in lines]


def without_folders(text: str, folder: Path) -> str:
    """The same text, its paths relative to the project, the temporary folder or Python's."""
    known = [(f"{ROOT}/", ""), (f"{folder}/", ""), (str(folder), "FOLDER")]
    for name in ("purelib", "platlib", "stdlib"):
        known.append((f"{sysconfig.get_path(name)}/", ""))
    known += [(sys.executable, "python"), (f"{Path.home()}/", "~/")]
    for path, instead in known:
        text = text.replace(path, instead)
    return text


def summary(path: Path, folder: Path) -> dict[str, Any] | None:
    """What a saved diagnosis says; ``None`` if there is none."""
    if not path.is_file():
        return None
    whole = json.loads(without_folders(path.read_text(), folder))
    found = {name: whole.get(name) for name in OF_DIAGNOSIS}
    found["step"] = {name: whole["step"].get(name) for name in OF_STEP}
    found["leaves"] = {name: value for name, value in whole["leaves"].items() if value}
    found["device"] = whole["device"]["name"]
    found["coverage"] = whole["coverage"]
    for table, rows in (("ops", 6), ("idle", 8), ("lines", 6), ("collectives", 6), ("findings", 8)):
        found[table] = (whole.get(table) or [])[:rows]
    return found


def start_diagnosis(
    script: Path, folder: Path, setting: Setting, *options: str, gated: bool = False,
    arguments: Sequence[str] = (), launcher: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Child:  # fmt: skip
    """``gobrrr run --json`` of a script; ``launcher`` (torchrun) stands for the interpreter."""
    folder.mkdir(exist_ok=True)
    begin = (*launcher, *GOBRRR[1:]) if launcher else GOBRRR
    command = (*begin, "--json", str(folder / "d.json"), *options, str(script), *arguments)
    return Child(command, folder, setting, gated=gated, environment=environment)


def ended_diagnosis(child: Child, limit_s: float) -> dict[str, Any]:
    """How it ended, and what it says."""
    ended = child.end(limit_s)
    others = sorted(child.folder.glob("d.rank*.json"))
    return {
        **ended,
        "diagnosis": summary(child.folder / "d.json", child.folder),
        **({"others": [summary(each, child.folder) for each in others]} if others else {}),
    }


def skipped(setting: Setting) -> dict[str, str] | None:
    """What stands for a piece that needs CUDA, where there is none."""
    return None if on_cuda(setting) else NEEDS_CUDA


class Budget:
    """Seconds that are left of a part, less two in which it saves and ends.

    Where little work is done it is to be tried, on however slow a machine: ten times as many.
    """

    def __init__(self, limit_s: float, setting: Setting) -> None:
        self._times = 10.0 if setting.small else 1.0
        self._until = time.perf_counter() + self._times * (limit_s - 2.0)

    @property
    def left_s(self) -> float:
        return self._until - time.perf_counter()

    def at_most(self, seconds: float) -> float:
        """So many seconds of it, or what is left."""
        return min(self._times * seconds, self.left_s)
