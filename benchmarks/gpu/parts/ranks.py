"""Several processes: does a job on a GPU give one report, and is a neighbour on the GPU noticed?

Under torchrun as docs/jobs.md says, beside each other: one rank with NCCL, two with gloo that share
the GPU. One loop alone, under gobrrr, and under gobrrr while another process keeps the GPU busy.
Refuted by a job without its report or with another exit status, by a neighbour without a notice,
and by time slices that are told as the program's own overhead.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpu.processes import (
    SCRIPTS,
    Budget,
    Child,
    ended_diagnosis,
    skipped,
    start_diagnosis,
)
from benchmarks.gpu.setting import Setting

LIMIT_S = 40
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


def run(setting: Setting, save: Callable[[Any], None]) -> Any:
    """Rows by piece, each the processes' ends with the diagnoses of all ranks."""
    budget = Budget(LIMIT_S, setting)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="r") as made:

        def loop(name: str) -> Child:
            """Under gobrrr; it gets ready while others run."""
            folder = Path(made) / name
            return start_diagnosis(SCRIPTS / "training_loop.py", folder, setting, gated=True)

        def plain(name: str, *, gated: bool, clock: bool = False) -> Child:
            command = (sys.executable, str(SCRIPTS / f"{name}.py"))
            steps = {"STEPS": "100"}
            folder = Path(made) / name
            return Child(command, folder, setting, gated=gated, clock=clock, environment=steps)

        def job(name: str, ranks: int, backend: str) -> Child:
            return start_diagnosis(
                SCRIPTS / "ddp.py", Path(made) / name, setting, "--stop", gated=True,
                launcher=(*TORCHRUN, str(ranks)), environment={"BACKEND": backend},
            )  # fmt: skip

        def ended(name: str, child: Child) -> None:
            found[name] = ended_diagnosis(child, budget.at_most(15.0))
            save(found)

        # Imports are half of all seconds here: whose turn comes later has them done by then.
        alone = plain("training_loop", gated=False, clock=True)
        jobs = {"gloo_two_ranks": job("gloo", 2, "gloo")}
        if (without := skipped(setting)) is not None:
            found["nccl_one_rank"] = without
        else:
            jobs["nccl_one_rank"] = job("nccl", 1, "nccl")
        found["loop_alone"] = alone.end(budget.at_most(15.0))
        save(found)
        for child in jobs.values():
            child.go()
        diagnosed, beside = loop("d"), loop("n")
        neighbour = plain("neighbour", gated=True)
        for name, child in jobs.items():
            ended(name, child)
        diagnosed.go()
        ended("loop_diagnosed", diagnosed)
        neighbour.go()
        try:
            until = time.perf_counter() + budget.at_most(6.0)
            while not (neighbour.folder / "busy").exists() and time.perf_counter() < until:
                time.sleep(0.01)
            found["neighbour_was_busy"] = (neighbour.folder / "busy").exists()
            beside.go()
            ended("loop_with_neighbour", beside)
        finally:
            found["neighbour"] = neighbour.end(0.0)
    return found
