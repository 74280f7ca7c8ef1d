"""Which way of ending a profile lets go of CUPTI each time, and leaves later sessions whole.

The program of ``residue`` runs through several sessions in one process; before the first and after
each its step is timed, and of each the recorded calls and kernels are counted. A way is refuted
where a step is slower after a session than before the first, or a session lacks records.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.gpu.raw import Child, exported, kernels, synchronise
from benchmarks.gpu.setting import Setting

LIMIT_S = 60
SESSIONS, STEPS, BLOCKS = 6, 8, 5
READY_S, SECONDS = 25.0, 42.0
TEARDOWN = "TEARDOWN_CUPTI"
# After a stop: how often the device is waited for, and how long is slept before each time.
ENDINGS: dict[str, tuple[int, float]] = {
    "untouched": (0, 0.0), "torn": (0, 0.0), "waited": (5, 0.002), "slept": (5, 0.05),
    "prepared": (5, 0.002), "not_lazy": (5, 0.002), "last": (5, 0.002), "gobrrr": (0, 0.0),
}  # fmt: skip


def prepare(case: str, device: str, small: bool) -> Callable[[], Any]:
    """The network on the device, run until it is warm; gives the measurement."""
    import torch
    import torch._inductor.config  # By the first profile otherwise, which takes seconds.

    layers = [torch.nn.Linear(64, 64) for _ in range(8 if small else 100)]
    model = torch.nn.Sequential(*layers).to(device).eval()
    x = torch.randn(32, 64, device=device)
    if case not in ("untouched", "last"):
        os.environ[TEARDOWN] = "1"
    if case == "not_lazy":
        os.environ["DISABLE_CUPTI_LAZY_REINIT"] = "1"

    def forward() -> None:
        with torch.no_grad():
            model(x)

    def timed() -> list[float]:
        """Microseconds a step, of a few blocks."""
        found = []
        for _ in range(BLOCKS):
            synchronise(device)
            begin = time.perf_counter_ns()
            for _ in range(STEPS):
                forward()
            synchronise(device)
            found.append(round((time.perf_counter_ns() - begin) / 1e3 / STEPS, 1))
        return found

    def call() -> dict[str, Any]:
        rows: list[dict[str, Any]] = [{"wall_us": timed()}]
        for number in range(SESSIONS):
            if case == "last" and number == SESSIONS - 1:
                os.environ[TEARDOWN] = "1"
            counted = counts(case, device, forward)
            rows.append({"wall_us": timed(), **counted})
        return {"rows": rows, "medians_us": [statistics.median(row["wall_us"]) for row in rows]}

    for _ in range(5 if small else 50):
        forward()
    synchronise(device)
    return call


def counts(case: str, device: str, forward: Callable[[], None]) -> dict[str, Any]:
    """What one session has recorded of three steps."""
    import torch
    from torch.profiler import ProfilerActivity as Activity

    if case == "gobrrr":
        from pathlib import Path
        from tempfile import TemporaryDirectory

        from gobrrr.devices.backends import gpu_in_use
        from gobrrr.recordings.traces import read_trace

        backend = gpu_in_use()
        own = None if backend is None else backend.profiler()
        if own is None:
            return {"skipped": "needs CUDA"}
        with TemporaryDirectory() as folder:
            own.start()
            for _ in range(3):
                forward()
                own.mark()
            own.stop(Path(folder) / "trace.json")
            return {"kernels": len(read_trace(Path(folder) / "trace.json").kernels)}
    given = [Activity.CPU] if device == "cpu" else [Activity.CPU, Activity.CUDA]
    profiler = torch.profiler.profile(activities=given, record_shapes=True)
    if case == "prepared":
        profiler.prepare_trace()
        forward()
        synchronise(device)
        profiler.start_trace()
    else:
        profiler.start()
    for _ in range(3):
        forward()
    synchronise(device)
    profiler.stop()
    times, between_s = ENDINGS[case]
    for _ in range(times):
        time.sleep(between_s)
        synchronise(device)
    return {"kernels": len(kernels(exported(profiler)["traceEvents"]))}


def run(setting: Setting, save: Callable[[Any], None]) -> Any:
    """The ways one after the other; all have started beforehand, beside each other."""
    begin = time.monotonic()
    children = [Child("benchmarks.gpu.parts.sessions", case, setting) for case in ENDINGS]
    found: dict[str, Any] = {}
    try:
        ready = [child.wait_until_ready(begin + READY_S) for child in children]
        for child, is_ready in zip(children, ready):
            late = time.monotonic() > begin + SECONDS
            found[child.case] = {"error": "not reached in time"}
            if not late and (is_ready or child.failed):
                found[child.case] = child.measure(10.0)
            save(found)
    finally:
        for child in children:
            child.end()
    return found
