"""When each step of a script was done, for a run without anything else in it.

With ``STEP_CLOCK`` the file of that name gets the lengths of steps: the first half waits for the
device after each, the others (``free_s``, their mean) only at their end, as a program does that
nobody times. Without it nothing here does anything. ``STEP_GATE``: the script waits, its imports
done, until there is a file of that name.
"""

import atexit
import itertools
import json
import os
import time
from pathlib import Path

import torch

_file, _gate = os.environ.get("STEP_CLOCK"), os.environ.get("STEP_GATE")
_ended: list[float] = []
_steps = int(os.environ.get("STEPS", "0"))
# Of two epochs the first, and what lies between them.
_half = _steps // 2 + 1
_ready_s = 0.0


def ready() -> None:
    """All that a script imports is imported."""
    global _ready_s
    began = time.clock_gettime(time.CLOCK_BOOTTIME)
    ticks = float(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    _ready_s = began - ticks / os.sysconf("SC_CLK_TCK")
    parent, until = os.getppid(), time.perf_counter() + 300.0
    while _gate and not Path(_gate).exists():
        # Of torchrun's processes the parent stays, whoever has started that.
        if os.getppid() != parent or time.perf_counter() > until:
            raise SystemExit("nobody is left to open the gate")
        time.sleep(0.01)


def step_done() -> None:
    """A step has ended, or the first begins."""
    if _file:
        if len(_ended) <= _half or len(_ended) == _steps:
            _wait()
        _ended.append(time.perf_counter())


def _wait() -> None:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _write() -> None:
    waited = _ended[: _half + 1]
    lengths = [after - before for before, after in itertools.pairwise(waited)]
    whole = len(_ended) == _steps + 1 and _steps > _half
    free_s = (_ended[-1] - _ended[_half]) / (_steps - _half) if whole else None
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else None
    found = {"ready_s": _ready_s, "steps_s": lengths, "free_s": free_s, "peak_device_bytes": peak}
    Path(str(_file)).write_text(json.dumps(found))


if _file:
    atexit.register(_write)
