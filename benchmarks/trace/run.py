"""Reading and diagnosing a large trace: gobrrr beside HolisticTraceAnalysis, time and peak memory.

    PYTHONPATH=. python benchmarks/trace/run.py --hta /path/to/venv/bin/python --out FILE

The trace is a shared one repeated with shifted times and ids (make_trace.py). Every measurement is
a fresh process, pinned to one core; the two take turns. HolisticTraceAnalysis (``pip install
traceinsight`` in a virtual environment of its own) loads the trace and computes its temporal,
kernel and idle breakdowns; gobrrr reads it and makes the whole diagnosis. Imports are counted
apart for both.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.command import Record, needed, parser
from benchmarks.trace.make_trace import repeat

SMALL = "a100_8rank_training_rank3.json.gz"
START_UP = "h100_vit_nsfw_inference.json.gz"
# Of --quick: in the repository.
TINY = Path(__file__).parents[2] / "tests/data/traces/h100_bert_small_inference.json.gz"
QUICK_MB = 1.0

GOBRRR = """
import json, resource, sys, time
start = time.perf_counter()
from gobrrr.pipeline.trace import diagnose_trace
imported = time.perf_counter()
diagnosis = diagnose_trace(sys.argv[1])
done = time.perf_counter()
figures = diagnosis.device_time
print(json.dumps({
    "import_s": imported - start, "work_s": done - imported,
    "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "idle_s": figures.window_s - figures.busy_s,
}))
"""
READ_ONLY = """
import json, resource, sys, time
from gobrrr.recordings.traces import read_trace
from gobrrr.attribution.device.attribute import attribute_device
from gobrrr.attribution.device.groups import group_kernels
from gobrrr.work import work_of
start = time.perf_counter()
timeline = read_trace(sys.argv[1])
read = time.perf_counter()
group_kernels(timeline, attribute_device(timeline, None, work_of))
done = time.perf_counter()
print(json.dumps({
    "read_s": read - start, "attribute_s": done - read, "events": timeline.events,
    "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
}))
"""
HTA = """
import contextlib, io, json, resource, sys, time, warnings
warnings.filterwarnings("ignore")
start = time.perf_counter()
from hta.trace_analysis import TraceAnalysis
imported = time.perf_counter()
with contextlib.redirect_stdout(io.StringIO()):
    analysis = TraceAnalysis(trace_files={0: sys.argv[1]})
    loaded = time.perf_counter()
    temporal = analysis.get_temporal_breakdown(visualize=False)
    analysis.get_gpu_kernel_breakdown(visualize=False)
    analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
    done = time.perf_counter()
print(json.dumps({
    "import_s": imported - start, "load_s": loaded - imported, "work_s": done - imported,
    "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "idle_s": float(temporal["idle_time(us)"].iloc[0]) / 1e6,
}))
"""


@contextmanager
def alone(lock: Path | None) -> Iterator[None]:
    """Holds a lock file, where several measure on one machine."""
    if lock is None:
        yield
        return
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def measure(python: str, script: str, trace: Path, lock: Path | None) -> dict[str, float]:
    """One fresh process on one core; its last line is what it measured."""
    command = [python, "-c", script, str(trace)]
    if Path("/usr/bin/taskset").exists():
        command = ["/usr/bin/taskset", "-c", str(max(os.sched_getaffinity(0))), *command]
    with alone(lock):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def summary(rows: list[dict[str, float]]) -> dict[str, Any]:
    """The median of each figure, and all times."""
    found: dict[str, Any] = {
        key: round(statistics.median(row[key] for row in rows), 4) for key in rows[0]
    }
    found["all_work_s"] = [round(row["work_s"], 3) for row in rows]
    return found


def compared(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, float]:
    """Two summaries of the same trace beside each other."""
    return {
        "times_faster": round(theirs["work_s"] / ours["work_s"], 2),
        "memory_share": round(ours["peak_mib"] / theirs["peak_mib"], 3),
    }


def version_in(python: str, package: str) -> str:
    """Version of a package in another environment."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()


def start_up(trace: Path, rounds: int, lock: Path | None) -> dict[str, Any]:
    """From the shell to the verdict on a small trace, interpreter start included."""
    times = []
    for _ in range(rounds):
        with alone(lock):
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "gobrrr", "trace", str(trace)],
                capture_output=True,
                check=True,
            )
            times.append(time.perf_counter() - start)
    return {"trace_mb": round(trace.stat().st_size / 1e6, 2),
            "median_s": round(statistics.median(times), 3),
            "all_s": [round(t, 3) for t in times]}  # fmt: skip


def main() -> None:
    made = parser(__doc__, "traces")
    made.add_argument("--hta", help="Python of an environment with traceinsight")
    made.add_argument("--megabytes", type=float, default=320.0)
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--sizes", type=float, nargs="*", default=[40.0, 160.0, 640.0])
    made.add_argument("--folder", type=Path, help="keep the traces here (default: a new one)")
    made.add_argument("--lock", type=Path, help="hold this file during each measurement")
    given = made.parse_args()
    small, first = TINY, TINY
    if given.quick:
        given.megabytes, given.rounds, given.sizes = QUICK_MB, 1, [QUICK_MB]
    else:
        small = needed(given.shared / SMALL, "recorded traces")
        first = needed(given.shared / START_UP, "recorded traces")
    record = Record("trace", given, "msgspec", "numpy", "isal")
    with tempfile.TemporaryDirectory(prefix="gobrrr-trace-") as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        result = measured(given, folder, small, first)
    print(json.dumps(result, indent=1))
    record.write(result)


def measured(given: Any, folder: Path, small: Path, first: Path) -> dict[str, Any]:
    """All figures, with traces of several sizes made from ``small`` in ``folder``."""

    def trace_of(megabytes: float) -> Path:
        path = folder / f"{megabytes:.0f}mb.json.gz"
        if not path.exists():
            repeat(small, path, megabytes)
        return path

    def text_megabytes(path: Path) -> float:
        with gzip.open(path) as file:
            return round(
                sum(len(piece) for piece in iter(lambda: file.read(1 << 20), b"")) / 1e6, 1
            )

    big = trace_of(given.megabytes)
    ours, theirs = [], []
    for _ in range(given.rounds):
        ours.append(measure(sys.executable, GOBRRR, big, given.lock))
        if given.hta:
            theirs.append(measure(given.hta, HTA, big, given.lock))
    result: dict[str, Any] = {
        "cores_used": 1,
        "trace": {"from": small.name, "megabytes": text_megabytes(big),
                  "gzip_megabytes": round(big.stat().st_size / 1e6, 1)},
        "gobrrr": summary(ours),
    }  # fmt: skip
    if theirs:
        result["traceinsight_version"] = version_in(given.hta, "traceinsight")
        result["hta"] = summary(theirs)
        result |= compared(result["gobrrr"], result["hta"])
    result["by_size"] = [
        {
            "megabytes": text_megabytes(trace_of(size)),
            **measure(sys.executable, READ_ONLY, trace_of(size), given.lock),
        }
        for size in given.sizes
    ]
    result["start_up"] = start_up(first, 1 if given.quick else 5, given.lock)
    return result


if __name__ == "__main__":
    main()
