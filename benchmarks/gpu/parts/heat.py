"""What rate products hold as the card warms up, and what ceilings are: types, layouts, copies.

Refutes that one rate is the ceiling if the product rate of 8 s lies below that of 0.02 s by more
than its spread (the clock at each chunk says whether power is why); that two thirds of the sheet
are fp8's limit if ``use_fast_accum`` lifts it; that half is int8's if a size or layout lifts it;
that a kernel's fixed cost is an empty kernel's of one thread if element-wise kernels of 1, 132 and
1320 blocks take longer; and that idle time between queued kernels is the host's if kernels long in
the queue, or the nodes of a graph, are as far apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from benchmarks.gpu.card import Card, piece_by_piece, tried
from benchmarks.gpu.raw import (
    calls_of_runtime,
    correlation,
    exported,
    kernels,
    quantiles,
    session,
    synchronise,
)
from benchmarks.gpu.setting import Setting

LIMIT_S = 70
WINDOWS_S = (0.02, 0.5, 2.0, 8.0)
SIDE, SIDES = 8192, (8192, 16384)
# Elements of a block of PyTorch's vectorised element-wise kernel for float32; the trace says the
# grid that it truly had.
OF_BLOCK = 512
# About 20 us each.
QUEUED, QUEUED_SIZE = 500, 5 << 20
# Bytes of the copies.
SIZES = (1 << 30, 64 << 20, 4 << 20)
Save = Callable[[Any], None]


class Clock:
    """Milliseconds of device work between two of its events."""

    def __init__(self) -> None:
        import torch

        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def time(self, call: Callable[[], Any], times: int = 1) -> Clock:
        """Puts ``times`` calls between the events; does not wait."""
        self.begin.record()
        for _ in range(times):
            call()
        self.end.record()
        return self

    @property
    def ms(self) -> float:
        """Waits for the end."""
        self.end.synchronize()
        return float(self.begin.elapsed_time(self.end))


def windows(setting: Setting, save: Save) -> Any:
    """Chunks of bf16 products without a pause: TFLOP/s, clock and power of each, by window."""
    import torch

    card = tried(Card)
    a = torch.randn(SIDE, SIDE, device=setting.device, dtype=torch.bfloat16)
    b, out = torch.randn_like(a), torch.empty_like(a)

    def product() -> None:
        torch.mm(a, b, out=out)

    product()
    found: dict[str, Any] = {"side": SIDE, "windows": []}
    for window in WINDOWS_S:
        synchronise(setting.device)
        time.sleep(0.5)
        # A product takes about 1.5 ms.
        times = 3 if window < 0.1 else 12 if window < 1 else 60
        rows: list[list[Any]] = []
        begin = time.monotonic()
        waiting = [Clock().time(product, times)]
        while waiting:
            # One chunk runs while one waits: the device is never idle.
            if time.monotonic() - begin < window:
                waiting.append(Clock().time(product, times))
            ms = waiting.pop(0).ms
            # To ask takes longer than the chunks of the shortest window.
            asks = isinstance(card, Card) and window >= 0.5
            state = card.sample()[1:6] if asks else (None,) * 5
            rate = 2e-9 * SIDE**3 * times / ms
            rows.append([round(time.monotonic() - begin, 4), round(rate, 1), *state])
        found["windows"].append(
            {"window_s": window, "times": times, "rows": rows,
             "columns": ["t_s", "tflop_s", "sm_mhz", "memory_mhz", "power_w", "temperature_c",
                         "reasons"]}
        )  # fmt: skip
        save(found)
    return found


def repeated(call: Callable[[], Any], flops: float, chunks: int = 8) -> dict[str, Any]:
    """TFLOP/s of chunks of about 20 ms, after one that is not told."""
    once_ms = max(Clock().time(call).ms, Clock().time(call).ms, 1e-3)
    times = max(int(20 / once_ms), 1)
    rates = [flops * times / Clock().time(call, times).ms * 1e-9 for _ in range(chunks + 1)]
    return {"times": times, "tflop_s": [round(rate, 1) for rate in rates[1:]]}


def types(setting: Setting, save: Save) -> Any:
    """Products of each type, way of adding up, size and layout."""
    import torch

    device = setting.device
    found: dict[str, Any] = {}

    def of(rows: int, columns: int, dtype: Any, scale: float = 1.0) -> Any:
        return (torch.randn(rows, columns, device=device) * scale).to(dtype)

    one = torch.ones((), device=device)
    for side in SIDES:
        a, b = (of(side, side, torch.float8_e4m3fn) for _ in range(2))
        for out in (torch.bfloat16, torch.float32):
            for fast in (False, True):

                def fp8(a: Any = a, b: Any = b, out: Any = out, fast: bool = fast) -> Any:
                    return torch._scaled_mm(
                        a, b.t(), scale_a=one, scale_b=one, out_dtype=out, use_fast_accum=fast
                    )

                name = f"fp8_{side}_{str(out).rpartition('.')[2]}_{'fast' if fast else 'precise'}"
                found[name] = tried(repeated, fp8, 2.0 * side**3)
        save(found)
    for side in SIDES:
        for scale in (16.0, 0.0):
            a, b = (of(side, side, torch.int8, scale) for _ in range(2))
            ways = {
                "row_row": lambda a=a, b=b: torch._int_mm(a, b),
                "row_column": lambda a=a, b=b: torch._int_mm(a, b.t()),
                "column_row": lambda a=a, b=b: torch._int_mm(a.t(), b),
                "column_column": lambda a=a, b=b: torch._int_mm(a.t(), b.t()),
            }
            for way, int8 in ways.items():
                # Zeros take less power: whether that is the limit.
                name = f"int8_{side}_{way}{'' if scale else '_zeros'}"
                found[name] = tried(repeated, int8, 2.0 * side**3, 4)
        save(found)
    del a, b, ways
    for dtype in (torch.bfloat16, torch.float16):
        a, b = (of(SIDE, SIDE, dtype) for _ in range(2))
        ways = {"row_row": lambda a=a, b=b: a @ b, "row_column": lambda a=a, b=b: a @ b.t()}
        for way, mm in ways.items():
            name = f"{str(dtype).rpartition('.')[2]}_{SIDE}_{way}"
            found[name] = tried(repeated, mm, 2.0 * SIDE**3)
    return found


def empty_kernels(setting: Setting, save: Save) -> Any:
    """Profiled us of the shortest element-wise kernels by grid; by node of a graph without it."""
    import torch

    device = setting.device
    blocks_of = (1, 132, 1320)
    tensors = {blocks: torch.zeros(blocks * OF_BLOCK, device=device) for blocks in blocks_of}
    outs = {blocks: torch.empty_like(x) for blocks, x in tensors.items()}
    ops: dict[str, Callable[[int], Any]] = {
        "neg": lambda n: torch.neg(tensors[n], out=outs[n]),
        "add": lambda n: torch.add(tensors[n], tensors[n], out=outs[n]),
        "fill": lambda n: outs[n].fill_(1.0),
        "sleep": lambda n: torch.cuda._sleep(0),
    }
    calls = 200
    found: dict[str, Any] = {"calls": calls, "rows": []}
    for name, op in ops.items():
        for blocks in blocks_of:
            op(blocks)
            with session(device) as profiler:
                for _ in range(calls):
                    op(blocks)
            records = kernels(exported(profiler)["traceEvents"])
            row: dict[str, Any] = {
                "op": name, "blocks": blocks,
                "grids": sorted({tuple(k["args"].get("grid", ())) for k in records}),
                "kernel": records[0]["name"][:80] if records else None,
                "us": quantiles([k["dur"] for k in records]),
            }  # fmt: skip
            row["node_us"] = tried(node_us, op, blocks, device)
            found["rows"].append(row)
            save(found)
    return found


def node_us(op: Callable[[int], Any], blocks: int, device: str) -> list[float]:
    """Us from a node of a graph to the next, of 1000, five times, without the profiler."""
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(1000):
            op(blocks)
    graph.replay()
    synchronise(device)
    return [round(Clock().time(graph.replay).ms, 4) for _ in range(5)]


def gaps(setting: Setting, save: Save) -> Any:
    """Us between kernels that have long been queued, and between the nodes of a graph."""
    import torch

    device = setting.device
    x = torch.randn(QUEUED_SIZE, device=device)
    out = torch.empty_like(x)
    small = torch.randn(1024, device=device)
    small_out = torch.empty_like(small)
    a = torch.randn(1536, 1536, device=device, dtype=torch.bfloat16)
    product = torch.empty_like(a)

    def same() -> None:
        for _ in range(QUEUED):
            torch.add(x, x, out=out)

    def tiny() -> None:
        for _ in range(QUEUED):
            torch.add(small, small, out=small_out)

    def mixed() -> None:
        for _ in range(QUEUED // 2):
            torch.add(x, x, out=out)
            torch.mm(a, a, out=product)

    found: dict[str, Any] = {}
    for work in (same, tiny, mixed):
        work()
        synchronise(device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        for way, call in (("queued", work), ("graph", graph.replay)):
            name = f"{work.__name__}_{way}"
            found[name] = tried(between, call, device)
            save(found)
    return found


def between(call: Callable[[], Any], device: str) -> dict[str, Any]:
    """The gaps of one profiled run, and the device's time a kernel without the profiler."""
    import torch

    def waiting() -> Clock:
        # About 20 ms, in which all are put into the queue.
        torch.cuda._sleep(35_000_000)
        return Clock().time(call)

    alone = [round(waiting().ms * 1e3, 2) for _ in range(3)]
    with session(device) as profiler:
        profiled = waiting().ms * 1e3
    events = exported(profiler)["traceEvents"]
    put = {correlation(c): c["ts"] + c["dur"] for c in calls_of_runtime(events)}
    records = [k for k in kernels(events) if "spin" not in k["name"]]
    found, late = [], 0
    for before, after in pairwise(records):
        end = before["ts"] + before["dur"]
        # Not yet in the queue when the one before it ended: the host's.
        if put.get(correlation(after), 0.0) > end:
            late += 1
        else:
            found.append(round(after["ts"] - end, 3))
    return {
        "kernels": len(records), "late": late, "gap_us": quantiles(found), "gaps_us": found,
        "kernel_us": quantiles([k["dur"] for k in records]), "profiled_us": profiled,
        "alone_us": alone,
    }  # fmt: skip


def copies(setting: Setting, save: Save) -> Any:
    """Milliseconds of copies, ten times each: within the device, and to and from the host."""
    import torch

    device = setting.device
    found: dict[str, Any] = {}
    for size in SIZES:
        there = torch.ones(size, dtype=torch.uint8, device=device)
        other = torch.empty_like(there)
        host = torch.ones(min(size, 1 << 28), dtype=torch.uint8)
        part, pinned = there[: len(host)], host.pin_memory()
        ways = {
            "d2d": (other, there), "h2d_pinned": (part, pinned), "d2h_pinned": (pinned, part),
            "h2d_pageable": (part, host), "d2h_pageable": (host, part),
        }  # fmt: skip
        for way, (to, of) in ways.items():
            found[f"{way}_{size >> 20}_mib"] = {
                "bytes": len(of), "ms": tried(ten_ms, to, of)
            }  # fmt: skip
        save(found)
    return found


def ten_ms(to: Any, of: Any) -> list[float]:
    """Milliseconds of ten copies, after one that is not told."""

    def copy() -> Any:
        return to.copy_(of, non_blocking=True)

    copy()
    return [round(Clock().time(copy).ms, 4) for _ in range(10)]


def run(setting: Setting, save: Save) -> Any:
    """The short ones while the card is cold, then the long windows."""
    if setting.device == "cpu":
        return {"skipped": "needs CUDA"}
    pieces = (gaps, empty_kernels, windows, types, copies)
    return piece_by_piece({piece.__name__: piece for piece in pieces}, setting, save)
