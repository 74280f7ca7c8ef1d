"""Memory in trials: how much a step takes at its peak, and a limit that holds in this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gobrrr.timeline.errors import InputError

_NEEDS_LINUX = (
    "a memory limit can be set on Linux only, whose RLIMIT_DATA counts what a process allocates"
)


@contextmanager
def memory_limited(limit_bytes: int | None) -> Iterator[None]:
    """Limits this process to that much beyond what it holds now; what would be more fails.

    An allocation that fails raises MemoryError or, in torch, RuntimeError; the process lives, and
    has its former limit again afterwards. A thread of native code that cannot do without the memory
    that it is refused can still end the process: only a process of its own is safe from that.
    Counted is private writable memory (RLIMIT_DATA) of the host: a GPU's memory is not limited.

    Raises InputError where such a limit does not exist.
    """
    if limit_bytes is None:
        yield
        return
    before = set_limit(limit_bytes)
    import resource

    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def set_limit(limit_bytes: int) -> tuple[int, int]:
    """Limit this process to that much beyond what it holds now; returns the (soft, hard) before.

    Raises InputError where that cannot be done.
    """
    if sys.platform != "linux":
        raise InputError(_NEEDS_LINUX)
    import resource

    with open("/proc/self/status") as status:  # noqa: PTH123 - a file of the kernel's
        held = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData:"))
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = held + limit_bytes
    for other in (soft, hard):
        if other != resource.RLIM_INFINITY:
            wanted = min(wanted, other)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
    return soft, hard


def step_peak_bytes(step: Callable[[], Any]) -> int | None:
    """The most memory that tensors take within a warm step, beyond what they held at its start.

    Parameters, optimizer state and the gradients of the step before are held at its start; so a
    step that frees those gradients before it needs its activations may take less than nothing, and
    0 is returned. On a GPU by the caching allocator's count, else by what torch's CPU allocator
    reports to the profiler, allocation by allocation: both are exact counts and repeat to the
    byte, but for what a library allocates without asking torch.

    ``None`` if neither reports anything. Raises what the step raises.
    """
    torch = sys.modules["torch"]
    if torch.cuda.is_available() and torch.cuda.is_initialized() and torch.cuda.memory_allocated():
        torch.cuda.synchronize()
        before = int(torch.cuda.memory_allocated())
        torch.cuda.reset_peak_memory_stats()
        kept = step()
        torch.cuda.synchronize()
        del kept
        return max(int(torch.cuda.max_memory_allocated()) - before, 0)
    with MemoryRecord() as record:
        kept = step()
    del kept
    return record.peak_bytes


class MemoryRecord:
    """What torch's CPU allocator hands out and takes back while this is entered."""

    def __init__(self) -> None:
        self.peak_bytes: int | None = None
        self._profile: Any = None

    def __enter__(self) -> MemoryRecord:
        from torch.profiler import ProfilerActivity, profile

        self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
        with _quiet_profiler():
            self._profile.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._profile.__exit__(*raised)
        events = self._profile.profiler.kineto_results.events()
        memory = sorted(
            ((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"),
            key=lambda event: event[0],
        )
        held = peak = 0
        for _, nbytes in memory:
            held += nbytes
            peak = max(peak, held)
        self.peak_bytes = peak if memory else None
        self._profile = None


@contextmanager
def _quiet_profiler() -> Iterator[None]:
    """PyTorch 2.13 otherwise prints a line for each start of the profiler."""
    name = "KINETO_LOG_LEVEL"
    was_set = name in os.environ
    os.environ.setdefault(name, "99")
    try:
        yield
    finally:
        # A trial that leaves a variable behind has changed the process.
        if not was_set:
            del os.environ[name]
