"""What the profiler adds to a call by its kind, where in it, and to kernels; and what a stop takes.

Loops of ``CALLS`` calls run without and with the profiler by turns, less than the launch queue
holds and from an idle device on, so that the clock tells the host alone; CUPTI is let go of at the
end of each session, or loops without would carry what stays of it (``residue``). A view has an
op's event and nothing else, ``launch`` a call's alone, ``add`` and ``linear`` both. Refuted is a
constant cost per event if the additions of the kinds do not follow from an op's and a launch
call's. Kernels: the device's own events around queued kernels and graph replays, with and without
the profiler.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import pairwise, repeat
from typing import Any

from benchmarks.gpu.card import piece_by_piece
from benchmarks.gpu.raw import (
    activities,
    calls_of_runtime,
    experimental,
    exported,
    kernels,
    quantiles,
    session,
    synchronise,
)
from benchmarks.gpu.setting import Setting

LIMIT_S = 60
CALLS = 400
ROUNDS, FEWER_ROUNDS, READ_ROUNDS = 20, 8, 5
# Elements of an addition that takes about 5 us, and of one of about 200 us.
SIZES = (1 << 20, 50 << 20)
Kinds = dict[str, Callable[[], Any]]


def kinds_of(device: str) -> Kinds:
    """The calls whose cost is asked for."""
    import torch
    from torch.nn import functional
    from torch.profiler import record_function

    x, weight = (torch.randn(64, 64, device=device) for _ in range(2))
    bias, out = torch.randn(64, device=device), torch.empty_like(x)

    def empty() -> None:
        with record_function("empty"):
            pass

    kinds: Kinds = {
        "view": lambda: x.view(32, 128),
        "add": lambda: torch.add(x, x, out=out),
        "linear": lambda: functional.linear(x, weight, bias),
        "record_function": empty,
    }
    if device != "cpu":
        kinds["launch"] = lambda: torch.cuda._sleep(0)
        kinds["fill"] = lambda: out.zero_()
    return kinds


def configurations(device: str) -> dict[str, dict[str, Any] | None]:
    """Options of the profiler; ``None`` is no profiler."""
    from torch.profiler import ProfilerActivity as Activity

    found: dict[str, dict[str, Any] | None] = {
        "off": None, "on": {}, "shapes": {"record_shapes": True},
    }  # fmt: skip
    if device != "cpu":
        found |= {"host": {"activities": [Activity.CPU]}, "device": {"activities": [Activity.CUDA]}}
    return found


def looped(kinds: Kinds, device: str, calls: int) -> dict[str, float]:
    """Microseconds a call, of each kind in turn, by the host's clock."""
    from torch.profiler import record_function

    # A session's first events wait for the profiler.
    for call in kinds.values():
        call()
    found = {}
    for kind, call in kinds.items():
        synchronise(device)
        with record_function(f"loop {kind}"):
            begin = time.perf_counter_ns()
            for _ in repeat(None, calls):
                call()
            found[kind] = (time.perf_counter_ns() - begin) / 1e3 / calls
        synchronise(device)
    return found


def spans(trace: dict[str, Any], kinds: Kinds, calls: int) -> dict[str, Any]:
    """Of each kind, us a call inside outermost ops and inside calls of the runtime; events."""
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
    host = sorted(
        (e for e in events if e.get("cat") in ("cpu_op", "user_annotation")),
        key=lambda e: (e["ts"], -e["dur"]),
    )
    found: dict[str, Any] = {}
    for kind in kinds:
        marks = [e for e in host if e["name"] == f"loop {kind}" and e["cat"] == "user_annotation"]
        if not marks:
            found[kind] = None
            continue
        begin, end = marks[0]["ts"], marks[0]["ts"] + marks[0]["dur"]
        inside = [e for e in host if begin <= e["ts"] < end and e is not marks[0]]
        outermost, reached = [], begin
        for event in inside:
            if event["ts"] >= reached:
                outermost.append(event)
                reached = event["ts"] + event["dur"]
        launches = [e for e in calls_of_runtime(events) if begin <= e["ts"] < end]
        found[kind] = {
            "op_us": sum(e["dur"] for e in outermost) / calls,
            "call_us": sum(e["dur"] for e in launches) / calls,
            "op_median_us": (quantiles([e["dur"] for e in outermost]) or {}).get("median"),
            "call_median_us": (quantiles([e["dur"] for e in launches]) or {}).get("median"),
            # Between outermost spans: Python, the binding, and the profiler's own work.
            "between_us": quantiles(
                [b["ts"] - a["ts"] - a["dur"] for a, b in pairwise(outermost)]
            ),
            "outermost": len(outermost), "ops": len(inside), "calls": len(launches),
            "loop_us": marks[0]["dur"] / calls,
        }  # fmt: skip
    return found


def per_call(setting: Setting, save: Callable[[Any], None]) -> Any:
    """Every round's loops: by configuration, columns of us a call by kind; spans of the first."""
    import torch

    device = setting.device
    calls, rounds = (40, 2) if setting.small else (CALLS, ROUNDS)
    kinds, configured = kinds_of(device), configurations(device)
    walls: dict[str, dict[str, list[float]]] = {
        name: {kind: [] for kind in kinds} for name in configured
    }
    found: dict[str, Any] = {"calls": calls, "wall_us": walls, "spans": []}
    with torch.no_grad():
        for _ in range(3):
            looped(kinds, device, calls)
        # A session's first use of CUPTI is not what later ones take.
        with session(device):
            looped(kinds, device, calls)
        for turn in range(rounds):
            for name, options in configured.items():
                if name not in ("off", "on") and turn >= FEWER_ROUNDS:
                    continue
                if options is None:
                    row = looped(kinds, device, calls)
                else:
                    with session(device, **options) as profiler:
                        row = looped(kinds, device, calls)
                    if turn < READ_ROUNDS and name != "device":
                        read = spans(exported(profiler), kinds, calls)
                        found["spans"].append({"configuration": name, "round": turn, **read})
                for kind, wall in row.items():
                    walls[name][kind].append(round(wall, 4))
            save(found)
    return found


def of_kernels(setting: Setting, save: Callable[[Any], None]) -> Any:
    """Us a kernel by the device's events, with and without the profiler, by turns."""
    import torch

    device = setting.device
    if device == "cpu":
        return {"skipped": "needs CUDA"}
    found: dict[str, Any] = {"rows": []}
    for size in SIZES:
        x = torch.randn(size, device=device)
        out = torch.empty_like(x)
        nodes = 100
        replays = 10 if size == SIZES[0] else 2

        def queued(x: Any = x, out: Any = out, nodes: int = nodes) -> int:
            for _ in range(4 * nodes):
                torch.add(x, x, out=out)
            return 4 * nodes

        queued()
        synchronise(device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(nodes):
                torch.add(x, x, out=out)

        def replayed(graph: Any = graph, replays: int = replays, nodes: int = nodes) -> int:
            for _ in range(replays):
                graph.replay()
            return replays * nodes

        for turn in range(6):
            for way in (queued, replayed):
                row: dict[str, Any] = {"size": size, "way": way.__name__, "round": turn}
                row["off_us"] = timed(way, device)
                with session(device) as profiler:
                    row["on_us"] = timed(way, device)
                records = kernels(exported(profiler)["traceEvents"])
                records = [k for k in records if "CUDAFunctor_add" in k["name"]]
                ends = [k["ts"] + k["dur"] for k in records]
                row["records"] = len(records)
                row["record_us"] = quantiles([k["dur"] for k in records])
                row["gap_us"] = quantiles([k["ts"] - e for e, k in zip(ends, records[1:])])
                row["off_again_us"] = timed(way, device)
                found["rows"].append(row)
            save(found)
    return found


def timed(work: Callable[[], int], device: str) -> float:
    """Us a kernel, of kernels that wait in the queue until all are there."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    synchronise(device)
    # About 15 ms.
    torch.cuda._sleep(25_000_000)
    begin.record()
    number = work()
    end.record()
    synchronise(device)
    return float(begin.elapsed_time(end)) * 1e3 / number


def of_stop(setting: Setting, save: Callable[[Any], None]) -> Any:
    """Seconds that the profiler's stop and the export take, and bytes, of many events."""
    import torch

    device = setting.device
    x = torch.randn(64, 64, device=device)
    out = torch.empty_like(x)
    adds = 500 if setting.small else 16_000
    only = experimental(trace_only=True)
    asked: dict[str, dict[str, Any]] = {"plain": {}, "shapes": {"record_shapes": True}}
    if only is not None:
        asked["trace_only_shapes"] = {"record_shapes": True, "experimental_config": only}
    found: dict[str, Any] = {}
    for name, options in asked.items():
        options = {"activities": activities(device), **options}
        profiler = torch.profiler.profile(**options)
        begin = time.perf_counter()
        profiler.start()
        started = time.perf_counter()
        for _ in range(adds):
            torch.add(x, x, out=out)
        synchronise(device)
        ran = time.perf_counter()
        profiler.stop()
        stopped = time.perf_counter()
        trace = exported(profiler)
        found[name] = {
            "adds": adds, "events": sum(e.get("ph") == "X" for e in trace["traceEvents"]),
            "start_s": started - begin, "loop_s": ran - started, "stop_s": stopped - ran,
            "export_s": trace["export_s"], "bytes": trace["bytes"],
        }  # fmt: skip
        save(found)
    return found


def run(setting: Setting, save: Callable[[Any], None]) -> Any:
    """Per call, per kernel, per stop."""
    os.environ["TEARDOWN_CUPTI"] = "1"
    pieces = {"calls": per_call, "stop": of_stop, "kernels": of_kernels}
    return piece_by_piece(pieces, setting, save)
