"""What PyTorch offers for every kind of GPU alike: events, the profiler, the allocator's count.

``AcceleratorBackend`` is what kinds of GPU share, on ``torch.accelerator`` and ``torch.Event``
(PyTorch 2.6 and later); what the installed one lacks is ``None`` rather than another device's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from gobrrr.devices.backend import DriverCalls
from gobrrr.devices.card import CardState
from gobrrr.devices.ceilings import Ceilings, Progress
from gobrrr.devices.datasheet import ceilings_from_datasheet
from gobrrr.devices.identity import DeviceIdentity
from gobrrr.measure.torch_profiler import profiler_of_torch


def wait_for(kind: str) -> None:
    """Wait for the current device of a kind (PyTorch's name), if this process uses one."""
    torch = sys.modules.get("torch")
    if torch is None or not is_initialised(torch, kind):
        return
    torch.accelerator.synchronize()


def profiler_runs() -> bool | None:
    """Whether torch's profiler is on in this thread, whoever opened it; ``None``: unknown."""
    import torch

    asked = getattr(torch.autograd, "_profiler_enabled", None)
    return None if asked is None else bool(asked())


def is_initialised(torch: Any, kind: str) -> bool:
    """Whether a device of a kind is there and this process has begun to use it."""
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None:
        return False
    current = accelerator.current_accelerator()
    if current is None or current.type != kind:
        return False
    # Asked first: whether one is there is not told without beginning to use CUDA, which a process
    # forked later then cannot. Not every kind initialises lazily.
    initialised = getattr(getattr(torch, kind, None), "is_initialized", None)
    if initialised is not None:
        return bool(initialised())
    return bool(accelerator.is_available())


class EventTimer:
    """Steps between events on the current stream."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._events: list[Any] = []

    def start_block(self) -> None:
        """Wait for the device, then mark the start of a block of steps."""
        wait_for(self._kind)
        self._events = []
        self.mark()

    def mark(self) -> None:
        """The end of a step, as an event on the current stream: nothing waits for it."""
        import torch

        event = torch.Event(self._kind, enable_timing=True)
        event.record()
        self._events.append(event)

    def end_block(self) -> list[int]:
        """Wait for the device; the lengths of the steps between marks, in ns."""
        wait_for(self._kind)
        pairs = zip(self._events, self._events[1:])
        lengths = [round(before.elapsed_time(after) * 1e6) for before, after in pairs]
        self._events = []
        return lengths


class TraceProfiler:
    """PyTorch's profiler on host and device, steps marked by ranges."""

    # Before anything is kept.
    LAUNCHES_BEFORE = 10

    def __init__(self, kind: str, activity: str) -> None:
        self._kind, self._activity = kind, activity
        self._profile: Any = None
        self._range: Any = None
        self._step = 0

    def start(self) -> None:
        """Begin. Raises RuntimeError if another profiler is running."""
        # Kineto of torch 2.13 prints a line per start and stop; 99 silences it.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        from torch.profiler import ProfilerActivity

        if profiler_runs():
            raise RuntimeError("another profiler is running in this program")
        device = getattr(ProfilerActivity, self._activity)
        # What ran before is no part of the first step.
        wait_for(self._kind)
        activities = {ProfilerActivity.CPU, device}
        self._profile = profiler_of_torch(
            activities=activities, record_shapes=True, only_exported=True
        )
        # Kineto asks for its buffers in the launch that first needs one, which is far longer: one
        # of gobrrr's, before anything is kept (pytorch/kineto#1020). No step of the program's runs
        # here: a profiler that it opens and closes meanwhile makes the start crash (torch 2.13).
        self._profile.prepare_trace()
        with suppress(RuntimeError):
            self._launch_some()
        self._profile.start_trace()
        self._enter()

    def _launch_some(self) -> None:
        import torch

        with torch.no_grad():
            value = torch.zeros(1, device=self._kind)
            for _ in range(self.LAUNCHES_BEFORE):
                value = value + 1
        wait_for(self._kind)

    def _enter(self) -> None:
        import torch

        self._range = torch.profiler.record_function(f"ProfilerStep#{self._step}")
        self._range.__enter__()

    @property
    def interrupted(self) -> bool:
        """Whether the program has ended this profiler, by starting and stopping one of its own."""
        return self._profile is not None and profiler_runs() is False

    def mark(self) -> None:
        """End one step here and begin the next."""
        self._range.__exit__(None, None, None)
        self._step += 1
        self._enter()

    def stop(self, path: Path) -> None:
        """Wait for the device, end, and write the trace."""
        wait_for(self._kind)
        self._range.__exit__(None, None, None)
        self._profile.stop()
        self._profile.export_chrome_trace(str(path))
        self._profile = None

    def abandon(self) -> None:
        """Stop without reading anything."""
        if self._profile is not None:
            # A device that is gone can end neither; a profiler left on would refuse the next one.
            with suppress(RuntimeError):
                self._range.__exit__(None, None, None)
            with suppress(RuntimeError):
                self._profile.stop()
            self._profile = None


class SideStream:
    """The current stream and one more, by ``torch.accelerator``."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._side: Any = None

    @contextmanager
    def beside(self) -> Iterator[None]:
        """What the block launches goes on the other stream, after what the current one holds."""
        import torch

        before = torch.accelerator.current_stream()
        self._side = self._side or torch.Stream(device=self._kind)
        self._side.wait_stream(before)
        torch.accelerator.set_stream(self._side)
        try:
            yield
        finally:
            torch.accelerator.set_stream(before)

    def join(self) -> None:
        """What the current stream is given from now on waits for the other; the host goes on."""
        import torch

        if self._side is not None:
            torch.accelerator.current_stream().wait_stream(self._side)


class AllocatorMeter:
    """The caching allocator's own count."""

    def __init__(self, kind: str) -> None:
        import torch

        self._kind = kind
        # On torch.accelerator since PyTorch 2.9; before, in the module of the kind.
        here = torch.accelerator
        self._module = here if hasattr(here, "max_memory_allocated") else getattr(torch, kind)

    def held_bytes(self) -> int:
        """Bytes of tensors that live."""
        return int(self._module.memory_allocated())

    def start_peak(self) -> None:
        """Wait for the device and forget the most that was held."""
        wait_for(self._kind)
        self._module.reset_peak_memory_stats()

    def peak_bytes(self) -> int:
        """Wait for the device; the most that was held since."""
        wait_for(self._kind)
        return int(self._module.max_memory_allocated())

    def driver_calls(self) -> DriverCalls | None:
        """On all devices of the kind; ``None`` where this version or kind does not count them."""
        if not hasattr(self._module, "memory_stats"):
            return None
        stats = [self._module.memory_stats(i) for i in range(self._module.device_count())]
        if not any("num_device_alloc" in each for each in stats):
            return None
        retries, allocations = (
            sum(int(each.get(name, 0)) for each in stats)
            for name in ("num_alloc_retries", "num_device_alloc")
        )
        return DriverCalls(retries, allocations)


class AcceleratorBackend:
    """A ``Backend`` by PyTorch's own means; a kind of GPU says what it can do beyond them.

    Attributes:
        TYPE: PyTorch's name for the kind of device.
        ACTIVITY: of ``ProfilerActivity``; ``None`` where the profiler does not see the device.
        COUNTS_MEMORY: whether PyTorch keeps the peak of its allocator there.
        HAS_STREAMS: whether PyTorch can put work on several streams there.
    """

    KINDS: tuple[str, ...] = ()
    IS_GPU = True
    MISSING: tuple[str, ...] = ()
    TYPE = ""
    ACTIVITY: str | None = None
    COUNTS_MEMORY = False
    HAS_STREAMS = True

    def _torch(self) -> Any:
        """PyTorch, if this process has begun to use such a device; else ``None``."""
        torch = sys.modules.get("torch")
        return torch if torch is not None and is_initialised(torch, self.TYPE) else None

    @staticmethod
    def operator_threads(wanted: int | None) -> int:
        """1: a GPU's rates do not depend on the threads of the host."""
        return 1

    def measure(self, device: DeviceIdentity, threads: int, progress: Progress) -> Ceilings:
        """The data sheet's, or none: there is no sweep for this kind of device."""
        found = ceilings_from_datasheet(device.name)
        if found is None:
            return Ceilings(device.name, {}, (), self.MISSING)
        return replace(found, notices=(*found.notices, *self.MISSING))

    def synchronise(self) -> None:
        """Wait for the current device, if this process uses one."""
        wait_for(self.TYPE)

    def in_use(self) -> bool:
        """Whether PyTorch's allocator holds anything, on any of the devices."""
        torch = self._torch()
        return torch is not None and self.allocated_bytes(torch) > 0

    def allocated_bytes(self, torch: Any) -> int:
        """Of all devices of the kind together."""
        module = getattr(torch, self.TYPE)
        return sum(int(module.memory_allocated(i)) for i in range(module.device_count()))

    def timer(self) -> EventTimer:
        """Events on the current stream."""
        return EventTimer(self.TYPE)

    def profiler(self) -> TraceProfiler | None:
        """PyTorch's."""
        return None if self.ACTIVITY is None else TraceProfiler(self.TYPE, self.ACTIVITY)

    def streams(self) -> SideStream | None:
        """PyTorch's."""
        return SideStream(self.TYPE) if self.HAS_STREAMS else None

    def watch_graphs(self, replays: Callable[[], None]) -> Callable[[], None]:
        """Nothing to watch: PyTorch has graphs of kernels for CUDA and ROCm alone."""
        return lambda: None

    def memory(self) -> AllocatorMeter | None:
        """Of the caching allocator; ``None`` where this process does not use the device."""
        if not self.COUNTS_MEMORY or self._torch() is None:
            return None
        return AllocatorMeter(self.TYPE)

    def held_by_others_bytes(self) -> int | None:
        """None: PyTorch says what is free for few kinds of device."""
        return None

    def card_state(self) -> CardState | None:
        """None: each vendor's driver has a library of its own."""
        return None

    def random_states(self) -> tuple[Any, ...]:
        """Of every device; none where this process uses no device."""
        torch = self._torch()
        if torch is None:
            return ()
        module = getattr(torch, self.TYPE)
        if hasattr(module, "get_rng_state_all"):
            return tuple(module.get_rng_state_all())
        return (module.get_rng_state(),)

    def set_random_states(self, states: tuple[Any, ...]) -> None:
        """Put them back."""
        torch = self._torch()
        if torch is None or not states:
            return
        module = getattr(torch, self.TYPE)
        if hasattr(module, "set_rng_state_all"):
            module.set_rng_state_all(list(states))
        else:
            module.set_rng_state(states[0])
