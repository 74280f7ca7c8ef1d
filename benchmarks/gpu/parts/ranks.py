"""Several processes: does a job on a GPU give one report, and is a neighbour on the GPU noticed?

Under torchrun as docs/jobs.md says: one rank with NCCL, two with gloo that share the GPU. The same
loop alone, under gobrrr alone, and under gobrrr while another process keeps the GPU busy. Refuted
by a job without its report or with another exit status, by a neighbour without a notice, and by
time slices that are told as the program's own overhead.
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

LIMIT_S = 30
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


def run(setting: Setting, save: Callable[[Any], None]) -> Any:
    """Rows by piece, each the processes' ends with the diagnoses of all ranks."""
    budget = Budget(LIMIT_S, setting)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="r") as made:

        def started(name: str, script: str, *options: str, **more: Any) -> Child:
            """One that gets ready while another runs."""
            path = SCRIPTS / script
            return start_diagnosis(path, Path(made) / name, setting, *options, gated=True, **more)

        def job(name: str, ranks: int, backend: str) -> Child:
            return started(
                name,
                "ddp.py",
                "--stop",
                launcher=(*TORCHRUN, str(ranks)),
                environment={"BACKEND": backend},
            )

        def ended(name: str, child: Child) -> None:
            child.go()
            found[name] = ended_diagnosis(child, budget.at_most(15.0))
            save(found)

        without = skipped(setting)
        nccl = None if without else job("nccl", 1, "nccl")
        alone, neighbour = (
            Child(
                (sys.executable, str(SCRIPTS / f"{name}.py")), Path(made) / name, setting,
                gated=True, clock=name == "training_loop", environment={"STEPS": "100"},
            )
            for name in ("training_loop", "neighbour")
        )  # fmt: skip
        try:
            if nccl is None:
                found["nccl_one_rank"] = without
            else:
                ended("nccl_one_rank", nccl)
            diagnosed = started("d", "training_loop.py")
            alone.go()
            found["loop_alone"] = alone.end(budget.at_most(10.0))
            beside = started("n", "training_loop.py")
            ended("loop_diagnosed", diagnosed)
            gloo = job("gloo", 2, "gloo")
            neighbour.go()
            until = time.perf_counter() + 6.0
            while not (neighbour.folder / "busy").exists() and time.perf_counter() < until:
                time.sleep(0.01)
            ended("loop_with_neighbour", beside)
        finally:
            found["neighbour"] = neighbour.end(0.0)
        ended("gloo_two_ranks", gloo)
    return found
