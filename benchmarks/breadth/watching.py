"""One process for each case, watched from outside: what it sends, when it dies, when it takes long.

The parent has imported everything heavy and forks; it computes nothing itself. A stage that dies or
takes too long is recorded as such, and a new process does the stages that are left.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Record = dict[str, Any]
Say = Callable[[str, Record | None], None]
Work = Callable[[tuple[str, ...], Say], None]

ADDRESS_SPACE_BYTES = 14 << 30
# Processor time is what a stage may take; the wall's limit is for what sleeps, on a loaded machine.
LIMIT_S = 60.0
WALL_PER_PROCESSOR_S = 10.0
_LOOK_EVERY_S = 0.5
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass
class _Running:
    """The stage that a child is in, and what it had used when that began."""

    stage: str
    wall_s: float
    cpu_s: float


def watch(
    work: Work, stages: tuple[str, ...], *, limit_s: float = LIMIT_S, errors_to: str = os.devnull
) -> dict[str, Record]:
    """Do all stages in children; one record a stage.

    ``work(stages, say)`` runs in the child. It says ``(stage, None)`` when a stage begins, which
    need not be one of ``stages`` ("build"), and ``(stage, record)`` when it has ended.
    """
    records: dict[str, Record] = {}
    left = stages
    while left:
        told, ended_in = _one_child(work, left, limit_s, errors_to)
        records.update(told)
        if ended_in is not None:
            stage, record = ended_in
            records[stage] = record
            if stage not in left:  # in what comes before the stages: none can be done
                break
        elif not any(stage in told for stage in left):  # it ended by itself and did none
            break
        left = tuple(stage for stage in left if stage not in records)
    return records


def _one_child(
    work: Work, stages: tuple[str, ...], limit_s: float, errors_to: str
) -> tuple[dict[str, Record], tuple[str, Record] | None]:
    """What a child told, and the stage in which it was ended, if it was."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _be_child(work, stages, write, errors_to)
    os.close(write)
    told: dict[str, Record] = {}
    running: _Running | None = None
    text = b""
    late: str | None = None
    while True:
        ready, _, _ = select.select([read], [], [], _LOOK_EVERY_S)
        if ready:
            more = os.read(read, 1 << 16)
            if not more:
                break
            text += more
            *lines, text = text.split(b"\n")
            for line in lines:
                stage, record = json.loads(line)
                if record is None:
                    running = _Running(stage, time.monotonic(), _cpu_seconds(child))
                else:
                    told[stage] = record
                    running = None
        late = _too_late(child, running, limit_s)
        if late is not None:
            # The child leads a group of its own, which holds it and what it has started.
            os.killpg(child, signal.SIGKILL)
            break
    os.close(read)
    _, status = os.waitpid(child, 0)
    if running is None:
        return told, None
    if late is not None:
        return told, (running.stage, {"outcome": "timed out", "sentence": late})
    if os.WIFSIGNALED(status):
        how = signal.Signals(os.WTERMSIG(status)).name
    else:
        how = f"exit code {os.WEXITSTATUS(status)}"
    return told, (running.stage, {"outcome": "died", "sentence": how})


def _be_child(work: Work, stages: tuple[str, ...], write: int, errors_to: str) -> None:
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        out = os.open(os.devnull, os.O_WRONLY)
        errors = os.open(errors_to, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(errors, 2)

        def say(stage: str, record: Record | None) -> None:
            line = json.dumps([stage, record], default=str).encode() + b"\n"
            while line:
                line = line[os.write(write, line) :]

        work(stages, say)
        os._exit(0)
    finally:
        os._exit(70)


def _too_late(child: int, running: _Running | None, limit_s: float) -> str | None:
    if running is None:
        return None
    used = _cpu_seconds(child) - running.cpu_s
    if used > limit_s:
        return f"more than {limit_s:.0f} s of processor time"
    if time.monotonic() - running.wall_s > limit_s * WALL_PER_PROCESSOR_S:
        return f"more than {limit_s * WALL_PER_PROCESSOR_S:.0f} s, {used:.0f} s of processor time"
    return None


def _cpu_seconds(child: int) -> float:
    """Processor time of a child and of its own children that ended; 0 where that is not known."""
    try:
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS_PER_S
