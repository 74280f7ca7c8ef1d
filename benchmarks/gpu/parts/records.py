"""Whether the profiler's records are complete and their times can be, session by session.

A session runs exactly ``ADDS`` additions of one kernel each and some forward passes of linears.
Refuted if a launch call lacks its record (or a record its call), a kernel begins before its launch
call, or a time is zero or outside the session, in any session: the first ones, one after idleness,
before and after the capture of a CUDA graph, one warmed up by ``prepare_trace``, ``trace_only``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.gpu.card import tried
from benchmarks.gpu.raw import (
    Child,
    activities,
    examined,
    experimental,
    exported,
    session,
    synchronise,
)
from benchmarks.gpu.setting import Setting

LIMIT_S = 60
ADDS = 1000
FORWARDS, LAYERS = 3, 100
IDLE_S = 5.0


class Body:
    """The work of a session: how many additions and forward passes, and how to run it."""

    def __init__(self, device: str, small: bool) -> None:
        import torch

        self.device = device
        self.adds, layers = (50, 8) if small else (ADDS, LAYERS)
        self.x = torch.randn(256, 256, device=device)
        self.out = torch.empty_like(self.x)
        self.model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(layers)))
        self.model.to(device).eval()
        self.rows = torch.randn(32, 64, device=device)

    def __call__(self) -> None:
        import torch

        for _ in range(self.adds):
            torch.add(self.x, self.x, out=self.out)
        synchronise(self.device)
        with torch.no_grad():
            for _ in range(FORWARDS):
                self.model(self.rows)
        synchronise(self.device)

    def judged(self, trace: dict[str, Any]) -> dict[str, Any]:
        """``examined``, and the additions that the trace holds: host ops and their kernels."""
        events = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
        return {
            "expected_adds": self.adds,
            "add_ops": sum(e["name"] == "aten::add" for e in events if e.get("cat") == "cpu_op"),
            # Of linears no kernel's name has this: cuBLAS adds the bias itself.
            "add_kernels": sum("CUDAFunctor_add" in e["name"] for e in events
                               if e.get("cat") == "kernel"),
            **examined(trace),
        }  # fmt: skip

    def profiled(self, work: Callable[[], None] | None = None, **options: Any) -> dict[str, Any]:
        """One session of its own."""
        begin = time.perf_counter()
        with session(self.device, **options) as profiler:
            started_s = time.perf_counter() - begin
            (work or self)()
            stopping = time.perf_counter()
        stop_s = time.perf_counter() - stopping
        return {"start_s": started_s, "stop_s": stop_s, **self.judged(exported(profiler))}

    def warmed(self) -> dict[str, Any]:
        """A session whose first launches fall between ``prepare_trace`` and ``start_trace``."""
        import torch

        profiler = torch.profiler.profile(activities=activities(self.device))
        profiler.prepare_trace()
        self()
        profiler.start_trace()
        self()
        profiler.stop_trace()
        return self.judged(exported(profiler))

    def captured(self) -> Any:
        """A CUDA graph of the additions, replayed once."""
        import torch

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(100):
                torch.add(self.x, self.x, out=self.out)
        graph.replay()
        synchronise(self.device)
        return graph


def prepare(case: str, device: str, small: bool) -> Callable[[], Any]:
    """A process whose first session is empty (or was none) before a graph is captured."""
    body = Body(device, small)
    body()

    def call() -> list[Any]:
        found = []
        if case == "empty_then_capture":
            with session(device):
                pass
        graph = body.captured()
        for _ in range(2):
            found.append(tried(body.profiled))
        found.append(tried(lambda: body.profiled(lambda: replayed(graph))))
        return found

    return call


def replayed(graph: Any) -> None:
    """Ten launches of the graph: 100 kernels each."""
    for _ in range(10):
        graph.replay()


def run(setting: Setting, save: Callable[[Any], None]) -> Any:
    """The sessions in their order, then two fresh processes that capture a graph first."""
    cuda = setting.device != "cpu"
    children = [
        Child("benchmarks.gpu.parts.records", case, setting)
        for case in (("empty_then_capture", "capture_first") if cuda else ())
    ]
    found: dict[str, Any] = {}
    try:
        body = Body(setting.device, setting.small)
        # Kernels are loaded at their first launch: not a stall of the profiler's.
        body()
        for child in children:
            child.wait_until_ready(time.monotonic() + 25.0)

        def add(name: str, call: Callable[[], Any]) -> None:
            found[name] = tried(call)
            save(found)

        for number in (1, 2, 3):
            add(f"session_{number}", body.profiled)
        time.sleep(0.1 if setting.small else IDLE_S)
        add("after_idle", body.profiled)
        add("prepared", body.warmed)
        only = experimental(trace_only=True)
        if only is None:
            found["trace_only"] = {"skipped": "this PyTorch does not have it"}
        else:
            add("trace_only", lambda: body.profiled(experimental_config=only))
        add("record_shapes", lambda: body.profiled(record_shapes=True))
        syncs = experimental(enable_cuda_sync_events=True)
        add("cuda_sync_events", lambda: body.profiled(experimental_config=syncs))
        if not cuda:
            found["after_capture"] = {"skipped": "needs CUDA"}
            return found
        add("before_capture", body.profiled)
        graph = tried(body.captured)
        add("after_capture", body.profiled)
        if not isinstance(graph, dict):
            # 1000 kernels by construction.
            add("replays", lambda: body.profiled(lambda: replayed(graph)))
        add("after_replays", body.profiled)
        for child in children:
            add(child.case, partial(child.measure, 15.0))
    finally:
        for child in children:
            child.end()
    return found
