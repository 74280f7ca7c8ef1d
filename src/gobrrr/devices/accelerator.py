"""What PyTorch offers for every kind of GPU alike: events, the profiler, the allocator's count.

``AcceleratorBackend`` is what kinds of GPU share, on ``torch.accelerator`` and ``torch.Event``
(PyTorch 2.6 and later); what the installed one lacks is ``None`` rather than another device's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, TypeVar

from gobrrr.devices.backend import DriverCalls
from gobrrr.devices.card import CardState
from gobrrr.devices.ceilings import Ceilings, Progress
from gobrrr.devices.datasheet import ceilings_from_datasheet
from gobrrr.devices.identity import DeviceIdentity
from gobrrr.measure.torch_profiler import profiler_of_torch

# A kind of device.
Kind = TypeVar("Kind", bound="AcceleratorBackend")


def wait_for(kind: str) -> None:
    """Wait for each device of a kind (PyTorch's name) that this process uses."""
    torch = sys.modules.get("torch")
    if torch is None or not is_initialised(torch, kind):
        return
    for index in devices_with_tensors(torch, kind):
        torch.accelerator.synchronize(index)


def allocated_bytes(torch: Any, kind: str) -> list[int]:
    """What the tensors of this process take on each device of a kind."""
    module = getattr(torch, kind)
    if not hasattr(module, "memory_allocated"):
        # Apple's, of which there is one.
        return [int(module.current_allocated_memory())]
    return [int(module.memory_allocated(index)) for index in range(module.device_count())]


def devices_with_tensors(torch: Any, kind: str) -> tuple[int, ...]:
    """The devices of a kind that hold tensors of this process; the current one where none does.

    The current one is not among them for being that: a program may put all on ``cuda:1``, and the
    first event or wait on a device takes some 500 MB of it.
    """
    held = tuple(index for index, size in enumerate(allocated_bytes(torch, kind)) if size)
    return held or (_current_device(torch, kind),)


def busiest_device(torch: Any, kind: str) -> int:
    """The device of a kind that holds most of this process; the current one where none does."""
    held = allocated_bytes(torch, kind)
    return held.index(max(held)) if any(held) else _current_device(torch, kind)


def _current_device(torch: Any, kind: str) -> int:
    module = getattr(torch, kind)
    return int(module.current_device()) if hasattr(module, "current_device") else 0


def free_bytes(device: Any) -> int | None:
    """What this process may still take of a device (``torch.device``); ``None`` if not told.

    What is free there, and what the allocator has reserved for tensors that are gone.
    """
    import torch

    module: Any = getattr(torch, device.type, None)
    if not (is_initialised(torch, device.type) and hasattr(module, "mem_get_info")):
        return None
    try:
        free, _ = module.mem_get_info(device)
    except RuntimeError:
        # Not every driver of Intel's tells.
        return None
    return int(free + module.memory_reserved(device) - module.memory_allocated(device))


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
    """Steps between events on the current streams of all devices that hold tensors."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._events: dict[int, list[Any]] = {}

    def start_block(self) -> None:
        """Wait for the devices, then mark the start of a block of steps."""
        import torch

        wait_for(self._kind)
        self._events = {index: [] for index in devices_with_tensors(torch, self._kind)}
        self.mark()

    def mark(self) -> None:
        """The end of a step, as an event on each device: nothing waits for it."""
        import torch

        for index, events in self._events.items():
            event = torch.Event(self._kind, enable_timing=True)
            # Without a stream it would be on the current device.
            event.record(torch.accelerator.current_stream(index))
            events.append(event)

    def end_block(self) -> list[int]:
        """Wait for the devices; the lengths of the steps between marks, in ns."""
        wait_for(self._kind)
        for events in self._events.values():
            # One that held tensors as the block began may hold none now.
            events[-1].synchronize()
        lengths = [
            [round(before.elapsed_time(after) * 1e6) for before, after in pairwise(events)]
            for events in self._events.values()
        ]
        self._events = {}
        return lengths_of_steps(lengths)


def lengths_of_steps(of_devices: Sequence[Sequence[int]]) -> list[int]:
    """Lengths in ns of steps on several devices, from those between each device's own marks.

    A step is over when the last device has done it. All began the block together, having been
    waited for, so a device's marks lie at the sums of its lengths, and a step lasts from the
    latest mark of the one before to its own latest. The longest of a step's lengths instead would
    count twice where devices hand work on: layers spread over two of them end a step on the first
    (the backward pass comes back to it), a step that is late there and one that is late on the
    second would both be long, and their sum longer than the block. A device that only holds
    tensors reaches its marks as they are given, before the one that works, and decides nothing.
    """
    ends = [max(marks) for marks in zip(*map(accumulate, of_devices))]
    return [end - begin for begin, end in pairwise((0, *ends))]


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
        try:
            with suppress(RuntimeError):
                self._launch_some()
            self._profile.start_trace()
            self._enter()
        except BaseException:
            self.abandon()
            raise

    def _launch_some(self) -> None:
        import torch
        from torch.utils._python_dispatch import _disable_current_modes

        if not is_initialised(torch, self._kind):
            return
        # A mode of the program's (a counter of ops, say) is not to see what is not its own.
        with _disable_current_modes(), torch.no_grad():
            # On one that the process uses: to begin with another takes memory there.
            device = torch.device(self._kind, busiest_device(torch, self._kind))
            value = torch.zeros(1, device=device)
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

    def may_see_more(self) -> bool:
        """No: nothing can be changed."""
        return False

    def abandon(self) -> None:
        """Stop without reading anything."""
        if self._profile is not None:
            # A device that is gone can end neither; a profiler left on would refuse the next one.
            with suppress(RuntimeError):
                if self._range is not None:
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
    """The caching allocator's own count, of one device."""

    def __init__(self, kind: str, index: int) -> None:
        import torch

        self._kind, self._index = kind, index
        # On torch.accelerator since PyTorch 2.9; before, in the module of the kind.
        here = torch.accelerator
        self._module = here if hasattr(here, "max_memory_allocated") else getattr(torch, kind)

    def held_bytes(self) -> int:
        """Bytes of tensors that live."""
        return int(self._module.memory_allocated(self._index))

    def start_peak(self) -> None:
        """Wait for the device and forget the most that was held."""
        wait_for(self._kind)
        self._module.reset_peak_memory_stats(self._index)

    def peak_bytes(self) -> int:
        """Wait for the device; the most that was held since."""
        wait_for(self._kind)
        return int(self._module.max_memory_allocated(self._index))

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

    Args:
        index: which of the devices of its kind it is; by default the one that works most, told by
            what it holds of this process.

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

    def __init__(self, index: int | None = None) -> None:
        self._index = index

    def at(self: Kind, index: int) -> Kind:
        """The same kind of device: the one with that number."""
        return type(self)(index)

    def _device(self, torch: Any) -> int:
        """Its number, as PyTorch counts."""
        if self._index is not None and self._index < getattr(torch, self.TYPE).device_count():
            return self._index
        if not is_initialised(torch, self.TYPE):
            return _current_device(torch, self.TYPE)
        return busiest_device(torch, self.TYPE)

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
        """Wait for each device that this process uses."""
        wait_for(self.TYPE)

    def in_use(self) -> bool:
        """Whether PyTorch's allocator holds anything, on any of the devices."""
        torch = self._torch()
        return torch is not None and any(allocated_bytes(torch, self.TYPE))

    def timer(self) -> EventTimer:
        """Events on the current streams."""
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

    def capturing(self) -> bool:
        """Asked of the current stream; false where this PyTorch has no graphs of such kernels."""
        # At each step's end, on a processor too: nothing more is asked than that takes.
        module: Any = getattr(sys.modules.get("torch"), self.TYPE, None)
        asked = getattr(module, "is_current_stream_capturing", None)
        return asked is not None and bool(module.is_initialized() and asked())

    def memory(self) -> AllocatorMeter | None:
        """Of the caching allocator; ``None`` where this process does not use the device."""
        torch = self._torch()
        if not self.COUNTS_MEMORY or torch is None:
            return None
        return AllocatorMeter(self.TYPE, self._device(torch))

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
