"""Fixed costs of the host: Python, the framework's dispatch, threads, page faults."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from gobrrr.devices.ceilings import Ceiling
from gobrrr.devices.cpu.compute import call_seconds, float32_on_cpu
from gobrrr.timeline.quantities import binary_size

_FAULT_BYTES = 64 << 20
# PyTorch runs an elementwise op in one thread up to this many elements (at::internal::GRAIN_SIZE).
_GRAIN = 32768


def python_adds(repeats: int = 20) -> Ceiling:
    """Integer additions per second of a plain Python loop, the loop's own cost in it."""
    count = 20_000
    value = count / min(call_seconds(lambda: _add(count)) for _ in range(repeats))
    return Ceiling("host.python_adds", value, "op/s", "measured", "total += 1 in a for loop")


def _add(count: int) -> int:
    total = 0
    for _ in range(count):
        total += 1
    return total


def dispatches(torch: Any, repeats: int = 40) -> Ceiling:
    """Calls per second of the smallest operator."""
    a, b, out = (torch.ones(1, **float32_on_cpu(torch)) for _ in range(3))
    count = 500

    def loop() -> None:
        add = torch.add
        for _ in range(count):
            add(a, b, out=out)

    value = count / min(call_seconds(loop) for _ in range(repeats))
    return Ceiling("host.dispatches", value, "op/s", "measured", "torch.add of one element")


def dispatch_now_s(torch: Any, block_s: float, blocks: int = 11) -> float:
    """Seconds of the smallest operator, its result allocated, at this moment.

    The median over blocks of about ``block_s`` seconds (0.2 to 20 ms): as long as the step that it
    is set beside. A processor that is shared runs at one speed now and at another later, and gives
    longer blocks a larger part of its interruptions; a ceiling, the best of many, tells neither.
    """
    a, b = (torch.ones(1, **float32_on_cpu(torch)) for _ in range(2))
    count = round(min(max(block_s, 2e-4), 2e-2) / 2e-6)

    def loop() -> None:
        add = torch.add
        for _ in range(count):
            add(a, b)

    with torch.no_grad():
        loop()
        return median(call_seconds(loop) for _ in range(blocks)) / count


def fork_join(torch: Any, threads: int, repeats: int = 200) -> Ceiling | None:
    """Seconds that PyTorch pays to spread one operator over its threads; ``None`` for one thread.

    The time of an addition with one grain for each thread minus that of one grain in one thread.
    """
    if threads < 2:
        return None

    def best(count: int) -> float:
        a = torch.ones(count, **float32_on_cpu(torch))
        return min(call_seconds(lambda: a.add_(1.0)) for _ in range(repeats))

    value = max(best(_GRAIN * threads) - best(_GRAIN), 0.0)
    return Ceiling("parallel.fork_join", value, "s", "measured", f"add_ on {threads} threads")


def page_fault() -> tuple[Ceiling, ...]:
    """Seconds per minor page fault, and bytes that one brings in.

    First touch of fresh memory minus the second, per fault. The kernel counts the faults
    (``ru_minflt``), so huge pages show as few and dear ones. Empty where the system does not count.
    """
    try:
        import resource
    except ImportError:
        return ()
    best: tuple[float, float] | None = None
    for _ in range(3):
        with mmap.mmap(-1, _FAULT_BYTES) as memory:
            pages = np.frombuffer(memory, dtype=np.uint8)[:: mmap.PAGESIZE]
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            first_s = call_seconds(partial(_touch, pages))
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
            again_s = call_seconds(partial(_touch, pages))
            del pages
        if faults < 1 or first_s <= again_s:
            continue
        cost_s = (first_s - again_s) / faults
        if best is None or cost_s < best[0]:
            best = (cost_s, _FAULT_BYTES / faults)
    if best is None:
        return ()
    source = f"first touch of 64 MiB, {binary_size(best[1])} per fault"
    return (
        Ceiling("page_fault", best[0], "s", "measured", source),
        Ceiling("page_fault.size", best[1], "B", "measured", "64 MiB by its faults"),
    )


def _touch(pages: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
    pages[:] = 1


def host_costs(torch: Any, threads: int) -> Iterator[Ceiling]:
    """All of them."""
    yield python_adds()
    yield dispatches(torch)
    joined = fork_join(torch, threads)
    if joined is not None:
        yield joined
    yield from page_fault()
