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
