"""What the parts share that measure the device and the profiler themselves, without gobrrr."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_RESULT = "RESULT "
_READY = "READY\n"
Events = list[dict[str, Any]]


class Child:
    """A fresh interpreter that prepares a measurement at once and makes it when told to.

    Several can start beside each other and measure one after the other, so that the time of
    importing PyTorch is paid once. ``module`` has ``prepare(case, device, small)``, which gives
    the call to make.
    """

    def __init__(
        self, module: str, case: str, setting: Any, environment: dict[str, str] | None = None
    ) -> None:
        paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        self.case = case
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu.raw", module, case, setting.device,
             str(int(setting.small))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **(environment or {})},
        )  # fmt: skip

    def wait_until_ready(self, until: float) -> bool:
        """Whether it has prepared itself by then (``time.monotonic``); otherwise it is ended."""
        stdout = self._process.stdout
        assert stdout is not None
        while select.select([stdout], [], [], max(until - time.monotonic(), 0))[0]:
            line = stdout.readline()
            if line == _READY:
                return True
            if not line:
                break
        self.end()
        return False

    @property
    def failed(self) -> bool:
        """Whether it has ended with an error of its own."""
        return (self._process.poll() or 0) > 0

    def measure(self, timeout_s: float) -> Any:
        """Its result, or ``{"error": ...}``; the process has ended afterwards."""
        try:
            said, _ = self._process.communicate("go\n", timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.end()
            return {"error": f"not done after {timeout_s:.0f} s"}
        except OSError as error:
            said = f"{error}\n"
        for line in reversed(said.splitlines()):
            if line.startswith(_RESULT):
                return json.loads(line.removeprefix(_RESULT))
        self._errors.seek(0)
        code = self.end()
        return {"error": f"exit status {code}", "tail": self._errors.read()[-1500:]}

    def end(self) -> int:
        """Ends it, if it still runs, and gives its exit status."""
        if self._process.poll() is None:
            self._process.kill()
        return self._process.wait()


def synchronise(device: str) -> None:
    """Waits for the device; nothing on a processor."""
    import torch

    if device != "cpu":
        torch.cuda.synchronize(device)


def activities(device: str) -> list[Any]:
    """The processor's, and the device's where there is one."""
    from torch.profiler import ProfilerActivity as Activity

    return [Activity.CPU] if device == "cpu" else [Activity.CPU, Activity.CUDA]


def experimental(**options: Any) -> Any:
    """Kineto's experimental settings; ``None`` where this PyTorch does not know one of them."""
    from torch._C._profiler import _ExperimentalConfig

    try:
        return _ExperimentalConfig(**options)
    except TypeError:
        return None


def exported(profiler: Any) -> dict[str, Any]:
    """The trace of a profiler that has stopped; ``bytes`` and ``export_s`` are added."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        begin = time.perf_counter()
        profiler.export_chrome_trace(str(path))
        took_s = time.perf_counter() - begin
        trace: dict[str, Any] = json.loads(path.read_bytes())
        return {**trace, "bytes": path.stat().st_size, "export_s": took_s}


@contextlib.contextmanager
def session(device: str, **options: Any) -> Iterator[Any]:
    """A profiled block that ends with the device idle; its trace is read by ``exported``."""
    import torch

    options = {"activities": activities(device), **options}
    profiler = torch.profiler.profile(**options)
    profiler.start()
    try:
        yield profiler
        synchronise(device)
    finally:
        profiler.stop()


def quantiles(values: Sequence[float], digits: int = 3) -> dict[str, Any] | None:
    """Least, quartiles, 99th percentile, largest, mean and number; ``None`` of nothing."""
    if not values:
        return None
    ordered = sorted(values)

    def at(share: float) -> float:
        return round(ordered[min(int(share * len(ordered)), len(ordered) - 1)], digits)

    return {
        "n": len(ordered), "min": at(0), "q25": at(0.25), "median": at(0.5), "q75": at(0.75),
        "q99": at(0.99), "max": at(1), "mean": round(statistics.fmean(ordered), digits),
    }  # fmt: skip


def device_records(events: Events) -> Events:
    """Kernels, copies and fills, by their start."""
    found = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    return sorted(found, key=lambda e: e["ts"])


def kernels(events: Events) -> Events:
    """The kernels, by their start."""
    return [e for e in device_records(events) if e["cat"] == "kernel"]


def calls_of_runtime(events: Events) -> Events:
    """The host's calls of the CUDA runtime and driver that put work into a queue, by start."""
    wanted = ("Launch", "Memcpy", "Memset")
    found = [
        e
        for e in events
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and any(w in e["name"] for w in wanted)
    ]
    return sorted(found, key=lambda e: e["ts"])


def correlation(event: dict[str, Any]) -> Any:
    """The number that a call and its records share; ``None`` where it has none."""
    return event.get("args", {}).get("correlation")


def examined(trace: dict[str, Any]) -> dict[str, Any]:
    """Whether the records of a trace can be believed: counts and times (us) that would not fit."""
    events: Events = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
    records, calls = device_records(events), calls_of_runtime(events)
    call_of = {correlation(c): c for c in calls}
    answered = {correlation(r) for r in records}
    without = [c for c in calls if correlation(c) not in answered]
    orphans = [r for r in records if correlation(r) not in call_of]
    # A graph's nodes share their launch: only the first of them tells how soon one began.
    first: dict[Any, float] = {}
    for record in records:
        first.setdefault(correlation(record), record["ts"])
    delays = [first[key] - call["ts"] for key, call in call_of.items() if key in first]
    spans = [e for e in events if e.get("cat") == "Trace" or "PyTorch Profiler" in e["name"]]
    timed = [e for e in events if e not in spans and e.get("cat") != "overhead"]
    outside = []
    if spans:
        begin, end = spans[0]["ts"], spans[0]["ts"] + spans[0]["dur"]
        outside = [e for e in timed if e["ts"] < begin or e["ts"] + e["dur"] > end]
    origin = min((e["ts"] for e in timed if e["ts"] > 0), default=0.0)
    launches = [c["dur"] for c in calls if "Launch" in c["name"]]
    longest = sorted(range(len(launches)), key=lambda i: -launches[i])[:8]
    by_queue: dict[Any, Events] = defaultdict(list)
    for record in records:
        by_queue[record.get("tid")].append(record)
    overlaps = sum(
        after["ts"] < before["ts"] + before["dur"] - 0.002
        for queue in by_queue.values()
        for before, after in pairwise(queue)
    )
    overheads = [e for e in events if e.get("cat") == "overhead"]
    return {
        "events": len(events),
        "categories": dict(Counter(str(e.get("cat")) for e in events)),
        "kernels": sum(r["cat"] == "kernel" for r in records),
        "kernel_names": dict(Counter(k["name"][:60] for k in kernels(events)).most_common(8)),
        "calls": dict(Counter(c["name"] for c in calls)),
        "calls_without_record": len(without),
        "calls_without_record_at": [calls.index(c) for c in without[:20]],
        "records_without_call": len(orphans),
        "records_before_call": sum(delay < 0 for delay in delays),
        "record_after_call_us": quantiles(delays),
        "zero_ts": sum(e["ts"] <= 0 for e in timed),
        "zero_duration_records": sum(r["dur"] <= 0 for r in records),
        "outside_session": len(outside),
        "outside_session_categories": dict(Counter(str(e.get("cat")) for e in outside)),
        "session_us": spans[0]["dur"] if spans else None,
        "overlaps_in_a_queue": overlaps,
        "kernel_us": quantiles([k["dur"] for k in kernels(events)]),
        "launch_us": quantiles(launches),
        "first_launches_us": launches[:5],
        "longest_launches": [[i, launches[i]] for i in longest],
        "overhead": [
            [e["name"], round(e["ts"] - origin, 3), e["dur"]]
            for e in sorted(overheads, key=lambda e: -e["dur"])[:40]
        ],
        "overhead_us": sum(e["dur"] for e in overheads),
        "bytes": trace["bytes"],
        "export_s": trace["export_s"],
    }


def _serve(arguments: list[str]) -> None:
    module, case, device, small = arguments
    prepare: Callable[..., Callable[[], Any]] = importlib.import_module(module).prepare
    call = prepare(case, device, small == "1")
    print(_READY, end="", flush=True)
    if sys.stdin.readline():
        print(_RESULT + json.dumps(call()), flush=True)
        # Others wait for their turn: what PyTorch takes down at its exit takes a second.
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    _serve(sys.argv[1:])
