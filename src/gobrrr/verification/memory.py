"""Memory in trials: how much a step takes at its peak, and a limit that holds in this process."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from gobrrr.devices.backend import MemoryMeter
from gobrrr.devices.backends import gpu_in_use
from gobrrr.measure.torch_profiler import profiler_of_torch
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


def device_peak_bytes(step: Callable[[], Any]) -> int | None:
    """The most that PyTorch holds on the GPU during one step; ``None`` where none is used."""
    meter = _meter_in_use()
    if meter is None:
        return None
    meter.start_peak()
    kept = step()
    peak = meter.peak_bytes()
    del kept
    return peak


def _meter_in_use() -> MemoryMeter | None:
    """What counts the memory of the GPU in use; ``None`` where none is, or nothing counts."""
    backend = gpu_in_use()
    return None if backend is None else backend.memory()


def step_peak_bytes(step: Callable[[], Any]) -> int | None:
    """The most memory that tensors made within a warm step take at once; see ``MemoryRecord``.

    ``None`` if it cannot be known. Raises what the step raises.
    """
    with MemoryRecord() as record:
        kept = step()
    del kept
    return record.peak_bytes


class MemoryRecord:
    """The most memory at once of the tensors that are made while this is entered.

    On a CPU by what torch's allocator tells the profiler, block by block: blocks that were there
    before (parameters, optimizer state, the gradients of the step before) count neither while they
    are held nor when they are freed, nor does what a library allocates without asking torch. On a
    GPU by the caching allocator's count, where what is freed of the earlier is taken off. Neither
    depends on the time: the same step takes the same bytes.

    ``peak_bytes`` is ``None`` until it is left, and where nothing is reported.
    """

    def __init__(self) -> None:
        self.peak_bytes: int | None = None
        self._profile: Any = None
        self._meter: MemoryMeter | None = None
        self._held_bytes = 0

    def __enter__(self) -> MemoryRecord:
        self._meter = _meter_in_use()
        if self._meter is not None:
            self._meter.start_peak()
            self._held_bytes = self._meter.held_bytes()
            return self
        from torch.profiler import ProfilerActivity

        self._profile = profiler_of_torch(activities=[ProfilerActivity.CPU], profile_memory=True)
        with _quiet_profiler():
            self._profile.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._meter is not None:
            self.peak_bytes = max(self._meter.peak_bytes() - self._held_bytes, 0)
            return
        self._profile.__exit__(*raised)
        results = self._profile.profiler.kineto_results
        self._profile = None
        # The only record of addresses, under private names: unknown where they have gone.
        with contextlib.suppress(AttributeError, ImportError):
            self.peak_bytes = peak_of_blocks(_blocks(results.experimental_event_tree()))


def peak_of_blocks(blocks: Iterable[tuple[int, int]]) -> int | None:
    """Most bytes at once of blocks (address, bytes; negative: freed) that are taken here.

    A block that is freed without having been taken was there before, and the profiler may know its
    size or not: it does not count.

    >>> peak_of_blocks([(1, -50), (2, 30), (3, 20), (2, -30), (4, 5)]), peak_of_blocks([])
    (50, None)
    """
    taken: dict[int, int] = {}
    held = peak = 0
    for address, size in blocks:
        if size > 0:
            taken[address] = size
            held += size
        else:
            held -= taken.pop(address, 0)
        peak = max(peak, held)
    return peak if taken or peak else None


def _blocks(roots: Iterable[Any]) -> list[tuple[int, int]]:
    """The allocations among the profiler's events, in order of time."""
    from torch._C._profiler import _EventType

    found: list[tuple[int, int, int]] = []
    waiting = list(reversed(list(roots)))
    while waiting:
        event = waiting.pop()
        # In their order, for those that have the same time.
        waiting += reversed(event.children)
        if event.tag == _EventType.Allocation:
            fields = event.extra_fields
            found.append((event.start_time_ns, fields.ptr, fields.alloc_size))
    found.sort(key=lambda block: block[0])
    return [(address, size) for _, address, size in found]


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
