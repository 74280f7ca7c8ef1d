"""What ``gobrrr plan`` itself takes for a 7 B-parameter decoder on 64 GPUs: seconds and memory.

    PYTHONPATH=. python benchmarks/plan/run.py --out FILE

A training step of Llama 2 7B, made from its configuration class, on 64 H100s in 8 hosts: every mesh
of them is predicted, from a shell's command to its report. Each round is a process of its own. The
aim is two minutes on two cores. Written beside it: how many meshes there are, how many fit into
80 GB, and the best five.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.command import Record, parser, skip
from benchmarks.plan.llama import SEVEN_BILLION, TINY

PROGRAM = Path(__file__).with_name("llama.py")
DEVICE, MEMORY = "H100-SXM", "80GB"
# Seconds that planning may take on two cores.
LIMIT_S = 120.0


@dataclass(frozen=True)
class Taken:
    """What one process took, from its start to its end; seconds and bytes."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def plan(function: str, devices: int, folder: Path) -> tuple[Taken, dict[str, Any]]:
    """One plan in a process of its own: what it took, and its JSON."""
    out = folder / "plan.json"
    command = [
        sys.executable, "-m", "gobrrr", "plan", f"{PROGRAM}:{function}", "--device", DEVICE,
        "--devices", str(devices), "--memory", MEMORY, "--json", str(out),
    ]  # fmt: skip
    with (folder / "said").open("w+") as said:
        begin = time.perf_counter()
        child = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        # The usage of this child alone. Its peak starts at this process's own, which has no torch.
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        if child.returncode:
            sys.exit(f"gobrrr plan ended with {child.returncode}:\n{said.read()[-2000:]}")
    taken = Taken(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)
    found: dict[str, Any] = json.loads(out.read_text())
    return taken, found


def row(mesh: dict[str, Any]) -> dict[str, Any]:
    """What is kept of one of the best meshes."""
    exposed = sum(s for name, s in mesh["parts_s"].items() if name.startswith("exposed "))
    same = (
        "mesh", "step_s", "low_s", "high_s", "tokens_per_s", "tokens_per_joule", "microbatches",
        "schedule", "slowest_stage", "slower_because",
    )  # fmt: skip
    return {
        **{name: mesh[name] for name in same},
        "peak_bytes": mesh["memory"]["peak"],
        "exposed_s": exposed,
    }


def summary(rounds: Sequence[Taken], fitting: int, left_out: int) -> dict[str, Any]:
    """Medians and the largest peak of the rounds, and how many meshes there are."""
    seconds = median(each.seconds for each in rounds)
    return {
        "seconds": seconds,
        "cpu_seconds": median(each.cpu_seconds for each in rounds),
        "peak_bytes": max(each.peak_bytes for each in rounds),
        "limit_s": LIMIT_S,
        "within_limit": seconds <= LIMIT_S,
        "meshes": fitting + left_out,
        "fitting": fitting,
        "left_out": left_out,
    }


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=3, help="processes, one after the other")
    given = options.parse_args()
    if importlib.util.find_spec("transformers") is None:
        skip("transformers is not installed")
    function, sizes, devices = "seven_billion", SEVEN_BILLION, 64
    if given.quick:
        function, sizes, devices, given.rounds = "tiny", TINY, 16, 1
    record = Record("plan", given, "transformers")
    rounds: list[Taken] = []
    with tempfile.TemporaryDirectory(prefix="gobrrr-plan-") as folder:
        for _ in range(given.rounds):
            taken, found = plan(function, devices, Path(folder))
            rounds.append(taken)
            fitting = len(found["best"]) + len(found["others"])
            print(
                f"{taken.seconds:.1f} s ({taken.cpu_seconds:.1f} s of CPU), "
                f"{taken.peak_bytes / 1e6:,.0f} MB; {fitting + len(found['left_out'])} meshes, "
                f"{fitting} fit; the best: "
                f"{found['best'][0]['mesh']}",
                flush=True,
            )
            record.write(
                {
                    "model": {**asdict(sizes), "parameters": sizes.parameters},
                    "planned": {"device": DEVICE, "devices": devices, "hosts": found["hosts"],
                                "memory": MEMORY},
                    "cores": len(os.sched_getaffinity(0)),
                    "summary": summary(rounds, fitting, len(found["left_out"])),
                    "rounds": [asdict(each) for each in rounds],
                    "best": [row(each) for each in found["best"]],
                    "left_out": found["left_out"],
                    "notices": found["notices"],
                }
            )  # fmt: skip


if __name__ == "__main__":
    main()
