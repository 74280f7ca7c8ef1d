"""Of several GPUs the one that works for this process, on a PyTorch whose devices are made up."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gobrrr.devices import backends
from gobrrr.devices.accelerator import (
    AllocatorMeter,
    EventTimer,
    TraceProfiler,
    free_bytes,
    lengths_of_steps,
    wait_for,
)
from gobrrr.devices.cuda.backend import Cuda
from gobrrr.devices.machine import ceilings_for_this_machine
from gobrrr.devices.mps.backend import Mps

torch = pytest.importorskip("torch")
# Imported for the first time beside a made-up device it fails halfway, for the tests after too.
pytest.importorskip("torch._dynamo")
pytestmark = pytest.mark.torch

GIB = 1 << 30


@dataclass
class Event:
    """Knows when its device came to it, in ms."""

    at_ms: float | None = None
    device: int | None = None
    devices: Devices | None = None

    def record(self, stream: int) -> None:
        assert self.devices is not None
        self.at_ms, self.device = self.devices.now_ms[stream], stream

    def synchronize(self) -> None:
        assert self.at_ms is not None

    def elapsed_time(self, other: Event) -> float:
        assert self.device == other.device
        assert self.at_ms is not None and other.at_ms is not None
        return other.at_ms - self.at_ms


@dataclass
class Devices:
    """Several NVIDIA GPUs. The first is current, as in a script that never calls ``set_device``."""

    held: list[int]
    names: tuple[str, ...] = ("Made Up 0", "Made Up 1", "Made Up 2", "Made Up 3")
    now_ms: dict[int, float] = field(default_factory=dict)
    waits: list[int] = field(default_factory=list)
    capturing: bool = False

    def install(self, patch: pytest.MonkeyPatch) -> Devices:
        self.now_ms = dict.fromkeys(range(len(self.held)), 0.0)
        used = {
            "is_available": lambda: True, "is_initialized": lambda: True,
            "device_count": lambda: len(self.held), "current_device": lambda: 0,
            "memory_allocated": self._at(self.held), "get_device_name": self._at(self.names),
            "memory_reserved": lambda device: 2 * self._at(self.held)(device),
            "mem_get_info": lambda device: (10 * GIB, 40 * GIB),
            "get_device_properties": lambda index: SimpleNamespace(
                total_memory=40 * GIB, multi_processor_count=100 + index, major=9, minor=0
            ),
            "is_current_stream_capturing": lambda: self.capturing,
        }  # fmt: skip
        for name, value in used.items():
            patch.setattr(torch.cuda, name, value)
        accelerator = SimpleNamespace(
            is_available=lambda: True, current_accelerator=lambda: SimpleNamespace(type="cuda"),
            synchronize=self.waits.append, current_stream=lambda index: index,
            memory_allocated=self._at(self.held), reset_peak_memory_stats=lambda index: None,
            max_memory_allocated=lambda index: 3 * self.held[index],
        )  # fmt: skip
        patch.setattr(torch, "accelerator", accelerator)
        patch.setattr(torch, "Event", lambda kind, enable_timing: Event(devices=self))
        return self

    @staticmethod
    def _at(values: Any) -> Any:
        return lambda device: values[getattr(device, "index", device)]

    def work(self, **of_device: float) -> None:
        """Devices reach so many ms more: ``gpu0=2.0``."""
        for name, ms in of_device.items():
            self.now_ms[int(name[3:])] += ms


def test_a_model_on_another_device_than_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = Devices([0, GIB]).install(monkeypatch)
    found = Cuda().identify()
    assert found is not None and (found.name, found.cores) == ("Made Up 1", 101)
    timer = EventTimer("cuda")
    timer.start_block()
    for _ in range(3):
        devices.work(gpu0=0.01, gpu1=5.0)
        timer.mark()
    assert timer.end_block() == [5_000_000] * 3
    # Not on the current one, of which a first event would take memory.
    assert set(devices.waits) == {1}
    assert Cuda().held_by_others_bytes() == 40 * GIB - 10 * GIB - 2 * GIB
    meter = Cuda().memory()
    assert isinstance(meter, AllocatorMeter)
    meter.start_peak()
    assert (meter.held_bytes(), meter.peak_bytes()) == (GIB, 3 * GIB)


def test_layers_spread_over_devices_end_a_step_where_the_last_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    devices = Devices([GIB, 2 * GIB]).install(monkeypatch)
    timer = EventTimer("cuda")
    timer.start_block()
    # Forward on 0 and 1, backward on 1 and 0: the first device's mark is the later one. In the
    # second step it comes late by 3 ms, in the third in time again.
    for own, other in ((10.0, 7.0), (13.0, 10.0), (7.0, 10.0)):
        devices.work(gpu0=own, gpu1=other)
        timer.mark()
    assert timer.end_block() == [10_000_000, 13_000_000, 7_000_000]
    assert sorted(set(devices.waits)) == [0, 1]


def test_lengths_of_steps_on_devices_sum_to_the_slowest_ones_block() -> None:
    alone = [3, 5, 4]
    assert lengths_of_steps([alone]) == alone
    # The longest of each step would be 3 + 6 + 6 for a block of 12.
    assert lengths_of_steps([[3, 3, 6], [2, 6, 2]]) == [3, 5, 4]
    assert lengths_of_steps([[], []]) == []
    assert lengths_of_steps([alone, [0, 0, 0]]) == alone


def test_devices_that_come_into_use_later_are_timed_from_the_next_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    devices = Devices([GIB, 0]).install(monkeypatch)
    timer = EventTimer("cuda")
    for lengths in ([1.0, 9.0], [1.0, 9.0]):
        timer.start_block()
        devices.work(gpu0=lengths[0], gpu1=lengths[1])
        timer.mark()
        devices.held[1] = GIB
        first = timer.end_block()
        assert first == [1_000_000] if len(devices.waits) == 3 else [9_000_000]
    # The one before it came into use, then both.
    assert devices.waits == [0, 0, 1, 0, 1, 0, 1]


def test_nothing_on_any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = Devices([0, 0]).install(monkeypatch)
    found = Cuda().identify()
    assert found is not None and found.name == "Made Up 0"
    wait_for("cuda")
    assert devices.waits == [0]
    assert not Cuda().in_use()


def test_the_ceilings_are_of_the_device_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Devices([GIB, 3 * GIB, 0]).install(monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measured: list[int] = []

    def measure(torch: Any, index: int, **_: Any) -> Any:
        from gobrrr.devices.ceilings import Ceilings

        measured.append(index)
        return Ceilings(torch.cuda.get_device_name(index), {}, ())

    monkeypatch.setattr("gobrrr.devices.cuda.measure.measure_gpu", measure)
    assert ceilings_for_this_machine(kind="gpu").device == "Made Up 1"
    # What a profile has found to work most.
    assert (
        ceilings_for_this_machine(kind="gpu", device=Cuda().at(2).identify()).device == "Made Up 2"
    )
    # A number that PyTorch has no device of: ROCm's profiler counts processors too.
    assert (
        ceilings_for_this_machine(kind="gpu", device=Cuda().at(7).identify()).device == "Made Up 1"
    )
    assert measured == [1, 2]
    assert backends.identify("cpu").kind == "cpu"


def test_what_is_free_counts_what_the_allocator_has_to_spare(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Devices([GIB, 2 * GIB]).install(monkeypatch)
    assert free_bytes(torch.device("cuda", 1)) == 12 * GIB
    # PyTorch says what is free of no Apple GPU.
    assert free_bytes(torch.device("mps")) is None


def test_an_apple_gpu_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    accelerator = SimpleNamespace(
        is_available=lambda: True, current_accelerator=lambda: SimpleNamespace(type="mps"),
        synchronize=waits.append,
    )  # fmt: skip
    monkeypatch.setattr(torch, "accelerator", accelerator)
    monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: 0)
    assert not Mps().in_use()
    Mps().synchronise()
    monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: 77)
    assert Mps().in_use()
    Mps().synchronise()
    assert waits == [0, 0]


def test_the_profiler_itself_writes_steps_and_ops(tmp_path: Path) -> None:
    # The host's activity alone: what a processor can run of it.
    profiler = TraceProfiler("cuda", "CPU")
    x = torch.ones(16, 16)
    profiler.start()
    for _ in range(3):
        torch.mm(x, x)
        assert not profiler.interrupted
        profiler.mark()
    profiler.stop(tmp_path / "trace.json")
    from gobrrr.recordings.traces import read_trace

    timeline = read_trace(tmp_path / "trace.json")
    names = [timeline.names[name] for name in timeline.host.name]
    assert names.count("aten::mm") == 3
    assert {"ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"} <= set(names)


def test_a_graph_is_captured_where_its_inputs_are(monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import contextmanager

    from gobrrr.fixes.compilation.cuda_graph import _graphed

    current: list[str] = ["first"]

    @contextmanager
    def device_of(tensor: str) -> Any:
        current.append(tensor)
        yield
        current.pop()

    def make(called: str, inputs: tuple[str, ...]) -> tuple[str, str]:
        return called, current[-1]

    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", make)
    assert _graphed("net", ["second"]) == ("net", "second")
    assert _graphed("net", []) == ("net", "first")
    assert current == ["first"]
