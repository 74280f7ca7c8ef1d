"""Whether steps are slower after a profile, and whether CUPTI's staying attached is why.

A forward pass of 100 small linears waits for the host, so that what CUPTI adds to each launch
shows. Each fresh process measures before and after what its case does; the ratio of a case is held
against the ratio of ``never``. Refuted if ``once`` and ``thrice`` stay within the spread of
``never``; CUPTI is the reason if ``teardown`` and ``host_only`` do not slow down and ``once`` does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.gpu.raw import Child, quantiles, session, synchronise
from benchmarks.gpu.setting import Setting

LIMIT_S = 60
# By value: what is not reached in time is at the end.
CASES = ("never", "once", "teardown", "thrice", "graph", "host_only")
ROUNDS = 3
# Of the part, from its begin on: no further measurement is begun.
SECONDS = 38.0
# For all processes to start in.
READY_S = 25.0
TEARDOWN = {"TEARDOWN_CUPTI": "1"}


def prepare(case: str, device: str, small: bool) -> Callable[[], Any]:
    """The network on the device, run until it is warm; gives the measurement."""
    import torch
    import torch._inductor.config  # By the first profile otherwise, which takes seconds.

    layers = [torch.nn.Linear(64, 64) for _ in range(8 if small else 100)]
    model = torch.nn.Sequential(*layers).to(device).eval()
    x = torch.randn(32, 64, device=device)
    blocks, steps = (3, 3) if small else (8, 12)

    def forward() -> Any:
        with torch.no_grad():
            return model(x)

    def measured() -> dict[str, Any]:
        """Microseconds a step by the host's clock and by the device's events, by block."""
        walls, events, issued = [], [], []
        for _ in range(blocks):
            synchronise(device)
            number = 0 if device == "cpu" else 2
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(number)]
            begin = time.perf_counter_ns()
            for mark in marks[:1]:
                mark.record()
            for _ in range(steps):
                before = time.perf_counter_ns()
                forward()
                issued.append((time.perf_counter_ns() - before) / 1e3)
            for mark in marks[1:]:
                mark.record()
            synchronise(device)
            walls.append(round((time.perf_counter_ns() - begin) / 1e3 / steps, 2))
            if marks:
                events.append(round(marks[0].elapsed_time(marks[1]) * 1e3 / steps, 2))
        return {"wall_us": walls, "event_us": events, "issue_us": quantiles(issued, 1)}

    def call() -> dict[str, Any]:
        found: dict[str, Any] = {"before": measured()}
        begin = time.perf_counter()
        did(case, device, forward)
        found["between_s"] = round(time.perf_counter() - begin, 3)
        # At once, and again: whether what stays of the profile fades.
        found["after"] = measured()
        found["later"] = measured()
        return found

    for _ in range(5 if small else 50):
        forward()
    synchronise(device)
    return call


def did(case: str, device: str, forward: Callable[[], Any]) -> None:
    """What the case does between its two measurements."""
    import torch
    from torch.profiler import ProfilerActivity

    if case == "graph":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            forward()
        for _ in range(5):
            graph.replay()
        synchronise(device)
        return
    times = {"never": 0, "thrice": 3}.get(case, 1)
    options = {"activities": [ProfilerActivity.CPU]} if case == "host_only" else {}
    for _ in range(times):
        with session(device, **options):
            for _ in range(5):
                forward()
    if not times:
        time.sleep(0.3)


def run(setting: Setting, save: Callable[[Any], None]) -> Any:
    """The cases by turns, one at a time; all have started beforehand, beside each other."""
    ends = time.monotonic() + SECONDS
    cases = [case for case in CASES if setting.device != "cpu" or case != "graph"]
    rounds = 1 if setting.small else ROUNDS
    children = [
        (turn, Child("benchmarks.gpu.parts.residue", case, setting,
                     TEARDOWN if case == "teardown" else None))
        for turn in range(rounds) for case in cases
    ]  # fmt: skip
    rows: list[dict[str, Any]] = []
    begin = time.monotonic()
    try:
        # Nothing is measured while others import: they would disturb it.
        ready_by = begin + READY_S
        ready = [child.wait_until_ready(ready_by) for _, child in children]
        found = {"started_s": round(time.monotonic() - begin, 1), "rows": rows}
        for (turn, child), is_ready in zip(children, ready):
            result: Any = {"error": "not reached in time"}
            # One that ended by itself tells why.
            if time.monotonic() < ends and (is_ready or child.failed):
                result = child.measure(15.0)
            rows.append({"case": child.case, "round": turn, **result})
            save(found)
    finally:
        for _, child in children:
            child.end()
    if setting.device == "cpu":
        rows.append({"case": "graph", "skipped": "needs CUDA"})
    return found
