"""Traces written by hand: events with times in microseconds, as the profiler writes them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

SHARED = Path(__file__).parents[2] / "shared" / "traces"
OURS = Path(__file__).parent / "data" / "traces"


class WrittenTrace:
    """Collects events; ``write`` makes the file. One process (7), thread 7 unless told."""

    def __init__(self, **top: Any) -> None:
        self.events: list[dict[str, Any]] = []
        self.top: dict[str, Any] = {"schemaVersion": 1, **top}

    def add(
        self, cat: str, name: str, start: Any, duration: Any, tid: Any = 7, **args: Any
    ) -> None:
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid, "ts": start,
             "dur": duration, "args": args}
        )  # fmt: skip

    def op(self, name: str, start: Any, duration: Any, tid: Any = 7, **args: Any) -> None:
        self.add("cpu_op", name, start, duration, tid, **args)

    def python(self, name: str, start: Any, duration: Any, tid: Any = 7) -> None:
        self.add("python_function", name, start, duration, tid)

    def note(self, name: str, start: Any, duration: Any, tid: Any = 7) -> None:
        self.add("user_annotation", name, start, duration, tid)

    def call(self, name: str, start: Any, duration: Any, correlation: Any, tid: Any = 7) -> None:
        self.add("cuda_runtime", name, start, duration, tid, correlation=correlation)

    def kernel(
        self, name: str, start: Any, duration: Any, correlation: Any = None, stream: int = 7,
        cat: str = "kernel", **args: Any,
    ) -> None:  # fmt: skip
        given = {"device": 0, "stream": stream, **args}
        if correlation is not None:
            given["correlation"] = correlation
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": stream, "ts": start,
             "dur": duration, "args": given}
        )  # fmt: skip

    def launch(
        self, name: str, called: Any, starts: Any, duration: Any, correlation: int, tid: Any = 7,
        stream: int = 7, call_time: Any = 2,
    ) -> None:  # fmt: skip
        """A launch call and its kernel."""
        self.call("cudaLaunchKernel", called, call_time, correlation, tid)
        self.kernel(name, starts, duration, correlation, stream)

    def text(self) -> str:
        return json.dumps({**self.top, "traceEvents": self.events})

    def write(self, folder: Path, name: str = "trace.json") -> Path:
        path = folder / name
        if name.endswith(".gz"):
            path.write_bytes(gzip.compress(self.text().encode()))
        else:
            path.write_text(self.text())
        return path


COMMS = {
    "Collective name": "allreduce", "In msg nelems": 1_000_000, "Out msg nelems": 1_000_000,
    "dtype": "Float", "Group size": 2, "Process Group Name": "default",
}  # fmt: skip


def rank_trace(
    rank: int | None,
    late_us: float = 0.0,
    world: int = 2,
    group_size: int = 2,
    group: str = "default",
    group_ranks: str | None = None,
) -> WrittenTrace:
    """Two steps: data loading for ``late_us``, 100 us of compute, then an all-reduce.

    All ranks finish it together, 40 us after the last (late by 60) arrives.
    """
    info = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": world}}
    trace = WrittenTrace(**info)
    comms = {**COMMS, "Group size": group_size, "Process Group Name": group}
    if group_ranks is not None:
        comms["Process Group Ranks"] = group_ranks
    for step in range(2):
        base = 1000 * step
        trace.note(f"ProfilerStep#{step}", base, 900)
        trace.note("enumerate(DataLoader)#x.__next__", base, late_us or 1)
        trace.op("aten::mm", base + late_us + 1, 8)
        trace.launch("gemm", base + late_us + 2, base + late_us + 10, 100, correlation=10 * step)
        trace.op("record_param_comms", base + late_us + 20, 9, **comms)
        arrives, ends = base + late_us + 110, base + 60 + 110 + 40
        trace.launch(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", base + late_us + 21, arrives,
            ends - arrives, correlation=10 * step + 1, stream=20,
        )  # fmt: skip
    return trace
