"""Is a live diagnosis that of a trace of the same program, and are both the independent clock's?

Nine programs: steps timed by events and by the host's clock before anything is profiled, then
diagnosed live, then recorded by PyTorch's profiler as its users do and diagnosed from the file.
Refuted by a step length off by more than 3 %, or leaves of the two that differ by more than 2 % of
the step without a notice.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu.clocks import (
    NEEDS_CUDA,
    Budget,
    Step,
    block_s,
    ceilings_of,
    events_s,
    on_cuda,
    row_of,
    steps_in,
)
from benchmarks.gpu.live_programs import PROGRAMS, LiveProgram
from benchmarks.gpu.setting import Setting

import gobrrr

LIMIT_S = 60
EACH_S = 14.0
RECORDED = 6


def run(setting: Setting, save: Callable[[Any], None]) -> Any:
    """Rows by program."""
    budget = Budget(LIMIT_S)
    ceilings, origin = ceilings_of(setting)
    found: dict[str, Any] = {"ceilings": origin, "programs": {}}
    for program in PROGRAMS[3:] if setting.small else PROGRAMS:
        row: dict[str, Any] = {}
        found["programs"][program.name] = row
        if program.needs_cuda and not on_cuda(setting):
            row |= NEEDS_CUDA
            continue
        measure = partial(_measured, program, setting, ceilings, row)
        if (failed := budget.attempt(measure, EACH_S)) is not None:
            row |= failed
        save(found)
    return found


def _measured(program: LiveProgram, setting: Setting, ceilings: Any, row: dict[str, Any]) -> None:
    """Adds to ``row`` as it goes, so that what fails takes nothing away."""
    import torch

    torch.manual_seed(38)
    work = program.build(setting)
    step: Step = work.step if isinstance(work, gobrrr.Workload) else work
    count = 3 if setting.small else max(min(steps_in(setting, step, 0.3), 60), 6)
    row["events_s"] = events_s(setting, step, count)
    row["block_s"] = [block_s(setting, step, count) for _ in range(3)]
    live = setting.diagnose(
        work, steps=2 if setting.small else 16, warmup=3, restore=False, ceilings=ceilings
    )
    row["live"] = row_of(live)
    row["after_s"] = block_s(setting, step, count)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        _record(setting, step, path)
        row["trace_bytes"] = path.stat().st_size
        # On a processor's trace there is no data sheet's name: these are its ceilings either way.
        row["trace"] = row_of(gobrrr.diagnose_trace(path, ceilings=ceilings))


def _record(setting: Setting, step: Step, path: Path) -> None:
    """A trace as PyTorch's recipe records one: two steps to warm up, six recorded."""
    # Kineto prints a line per start and stop of some versions; 99 silences it.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from torch.profiler import ProfilerActivity, profile, schedule

    activities = [ProfilerActivity.CPU]
    if on_cuda(setting):
        activities.append(ProfilerActivity.CUDA)
    with profile(
        activities=activities, record_shapes=True,
        schedule=schedule(wait=0, warmup=2, active=RECORDED, repeat=1),
        on_trace_ready=lambda found: found.export_chrome_trace(str(path)),
    ) as profiler:  # fmt: skip
        for _ in range(2 + RECORDED):
            step()
            profiler.step()
