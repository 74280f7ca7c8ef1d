"""The simulated device behind PyTorch's own names, for gobrrr's real timers and meters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gobrrr.devices.accelerator import EventTimer
from simulated_device.accelerator import Accelerator

DEVICES = 2


def _type_of(gpu: Accelerator) -> str:
    """PyTorch's word for the kind of device: AMD's are its ``cuda`` too."""
    return {"hip": "cuda"}.get(gpu.vendor.kind, gpu.vendor.kind)


class _Stream:
    """The current stream of a device; the program works on that of ``Hostility.device``."""

    def __init__(self, gpu: Accelerator, index: int) -> None:
        self._machine = gpu.machine
        self._works = index == gpu.machine.hostile.device

    def now_ns(self) -> int:
        """When the stream gets to what it is given now: at once where nothing runs."""
        machine = self._machine
        return machine.record_event().time_ns if self._works else machine.now_ns


class WatchedTimer(EventTimer):
    """gobrrr's own timer of events; the machine keeps when its marks truly were."""

    def __init__(self, gpu: Accelerator) -> None:
        super().__init__(_type_of(gpu))
        self._gpu = gpu
        self._true: list[int] = []

    def start_block(self) -> None:
        self._true = []
        super().start_block()

    def mark(self) -> None:
        super().mark()
        self._true.append(self._gpu.machine.record_event().time_ns)

    def end_block(self) -> list[int]:
        self._gpu.machine.timed.append(self._true)
        return super().end_block()


def behind_torch(gpu: Accelerator, patch: pytest.MonkeyPatch) -> None:
    """Until the test ends PyTorch has two devices, of which 0 is current, and ``gpu`` is one."""
    kind, works = _type_of(gpu), gpu.machine.hostile.device

    def index_of(device: Any) -> int:
        return 0 if device is None else int(getattr(device, "index", device))

    def synchronise(device: Any = None) -> None:
        if index_of(device) == works:
            gpu.synchronise()

    def of_device(figure: Any) -> Any:
        return lambda device=None: figure() if index_of(device) == works else 0

    def forget(device: Any = None) -> None:
        if index_of(device) == works:
            gpu.peak_bytes = gpu.held_bytes()

    class Event:
        """As ``torch.Event``: on the current device unless a stream is given."""

        def __init__(self, device: Any = None, *, enable_timing: bool = False) -> None:
            assert device == kind and enable_timing

        def record(self, stream: Any = None) -> None:
            gpu.refuse_while_capturing()
            self.time_ns = (stream or _Stream(gpu, 0)).now_ns()

        def synchronize(self) -> None:
            gpu.synchronise()

        def elapsed_time(self, end: Event) -> float:
            return (end.time_ns - self.time_ns) * 1e-6

    memory = {
        "memory_allocated": of_device(gpu.held_bytes),
        "max_memory_allocated": of_device(lambda: gpu.peak_bytes),
        "reset_peak_memory_stats": forget,
        "memory_stats": lambda device=None: of_device(gpu.memory_stats)(device) or {},
    }
    accelerator = {
        "is_available": lambda: True,
        "device_count": lambda: DEVICES,
        "current_accelerator": lambda check_available=False: SimpleNamespace(type=kind, index=0),
        "current_device_index": lambda: 0,
        "current_stream": lambda device=None: _Stream(gpu, index_of(device)),
        "synchronize": synchronise,
    }
    module = {
        "is_initialized": lambda: gpu.used,
        "device_count": lambda: DEVICES,
        "current_device": lambda: 0,
    }
    patch.setattr(torch, "Event", Event)
    for name, does in (accelerator | memory).items():
        patch.setattr(torch.accelerator, name, does, raising=False)
    for name, does in (module | memory).items():
        patch.setattr(getattr(torch, kind), name, does)
