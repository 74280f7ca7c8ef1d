"""What all kinds of GPU share, on a PyTorch whose accelerator is made up."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gobrrr.cli import main
from gobrrr.devices import backends
from gobrrr.devices.accelerator import (
    AllocatorMeter,
    EventTimer,
    SideStream,
    TraceProfiler,
    profiler_runs,
)
from gobrrr.devices.cuda.backend import Cuda
from gobrrr.devices.mps.backend import Mps
from gobrrr.devices.xpu.backend import Xpu
from gobrrr.recordings.traces import read_trace

torch = pytest.importorskip("torch")
# Imported for the first time beside a made-up device it fails halfway, for the tests after too.
pytest.importorskip("torch._dynamo")
pytestmark = pytest.mark.torch

SOURCE = Path(__file__).parents[2] / "src" / "gobrrr"
# Where ``torch.cuda`` may stand: the folder of the backend, and the fixes that are CUDA's own.
HOME = {"devices/cuda/", "fixes/compilation/cuda_graph.py"}


class MadeUpStream:
    """Knows which streams it waits for."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.waits_for: list[MadeUpStream] = []

    def wait_stream(self, other: MadeUpStream) -> None:
        self.waits_for.append(other)


class MadeUp:
    """Two ``xpu`` devices, the first of them current: their clocks move by 2 ms at each event."""

    def __init__(self, patch: pytest.MonkeyPatch, *, initialised: bool = True) -> None:
        self.now_ms = {0: 0.0, 1: 0.0}
        self.waits: list[int] = []
        properties = [
            SimpleNamespace(
                name=name, total_memory=64 * 10**9, gpu_subslice_count=56, driver_version="1.2"
            )
            for name in ("Made Up Min", "Made Up Max")
        ]
        self.held = [0, 300]
        module = SimpleNamespace(
            is_available=lambda: True, current_device=lambda: 0, device_count=lambda: 2,
            get_device_properties=properties.__getitem__, is_initialized=lambda: initialised,
            memory_allocated=self.held.__getitem__, get_rng_state=lambda: torch.zeros(2),
            set_rng_state=self._keep,
        )  # fmt: skip
        patch.setattr(torch, "xpu", module)
        patch.setattr(torch, "Event", self._event)
        accelerator = SimpleNamespace(
            is_available=lambda: True, current_accelerator=lambda: SimpleNamespace(type="xpu"),
            synchronize=self.waits.append, max_memory_allocated=lambda index: (0, 512)[index],
            memory_allocated=self.held.__getitem__, reset_peak_memory_stats=lambda index: None,
            current_stream=lambda index=None: self.stream if index is None else index,
            set_stream=self._set_stream, device_count=lambda: 2,
            memory_stats=lambda index: {"num_alloc_retries": index, "num_device_alloc": 3},
        )  # fmt: skip
        patch.setattr(torch, "accelerator", accelerator)
        self.stream = MadeUpStream("xpu")
        patch.setattr(torch, "Stream", MadeUpStream)
        self.kept: Any = None

    def _set_stream(self, stream: Any) -> None:
        self.stream = stream

    def _keep(self, state: Any) -> None:
        self.kept = state

    def _event(self, kind: str, enable_timing: bool) -> Any:
        assert kind == "xpu" and enable_timing
        event = SimpleNamespace(at=None)

        def record(index: int) -> None:
            self.now_ms[index] += 2.0
            event.at = self.now_ms[index]

        event.record, event.synchronize = record, lambda: None
        event.elapsed_time = lambda other: other.at - event.at
        return event


def test_what_the_allocator_asks_of_the_driver_is_counted_on_all_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made_up = MadeUp(monkeypatch)
    meter = AllocatorMeter("xpu", 0)
    assert meter.driver_calls() == (1, 6) and not made_up.waits
    monkeypatch.setattr(torch.accelerator, "memory_stats", lambda index: {})
    assert meter.driver_calls() is None


def test_an_intel_gpu_is_identified_timed_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up = MadeUp(monkeypatch)
    found = Xpu().identify()
    assert found is not None
    assert (found.name, found.kind, found.memory_bytes) == ("Made Up Max", "xpu", 64 * 10**9)
    assert Xpu().in_use()
    timer = EventTimer("xpu")
    timer.start_block()
    timer.mark()
    timer.mark()
    assert timer.end_block() == [2_000_000, 2_000_000]
    # Nothing is on the current device.
    assert made_up.waits == [1, 1]
    meter = Xpu().memory()
    assert isinstance(meter, AllocatorMeter)
    meter.start_peak()
    assert (meter.held_bytes(), meter.peak_bytes()) == (300, 512)
    states = Xpu().random_states()
    Xpu().set_random_states(states)
    assert made_up.kept is states[0]


def test_a_stream_beside_the_current_one_waits_for_it_and_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made_up = MadeUp(monkeypatch)
    current = made_up.stream
    streams = Xpu().streams()
    assert isinstance(streams, SideStream)
    streams.join()
    assert current.waits_for == []
    used = []
    for _ in range(2):
        with streams.beside():
            used.append(made_up.stream)
        assert made_up.stream is current
    side = used[0]
    assert used == [side, side] and side is not current and side.device == "xpu"
    assert side.waits_for == [current, current]
    streams.join()
    assert current.waits_for == [side]
    with pytest.raises(KeyError), streams.beside():
        raise KeyError
    assert made_up.stream is current
    # All that an Apple GPU is given runs in one order.
    assert Mps().streams() is None


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    MadeUp(monkeypatch)
    device = Xpu().identify()
    assert device is not None
    found = Xpu().measure(device, 1, lambda *_: None)
    assert found.rows == {} and found.notices == Xpu.MISSING
    assert Xpu().profiler() is None and Mps().profiler() is None
    assert Mps().memory() is None


def test_a_device_that_the_process_has_not_begun_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up = MadeUp(monkeypatch, initialised=False)
    assert not Xpu().in_use()
    assert Xpu().random_states() == ()
    Xpu().synchronise()
    assert made_up.waits == []


def test_an_apple_gpu_has_the_chips_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Mps().identify() is None
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 48 * 10**9)
    found = Mps().identify()
    processor = backends.identify("cpu")
    assert found is not None and (found.name, found.kind) == (processor.name, "mps")
    # With nothing on it, a program runs on the processor.
    monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: 0)
    assert backends.gpu_in_use() is None


def test_the_doctor_says_what_gobrrr_cannot_do_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    MadeUp(monkeypatch)
    assert main(["doctor"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Made Up Max" in shown and "does not read the profiler's traces of Intel" in shown


def names_torch_cuda(node: ast.AST) -> bool:
    """``torch.cuda`` under whatever name, ``import torch.cuda``, ``getattr(torch, "cuda")``."""
    if isinstance(node, ast.Attribute):
        owner = ast.unparse(node.value)
        return node.attr == "cuda" and owner.rpartition(".")[2] in ("torch", "_torch()")
    if isinstance(node, ast.Import):
        return any(alias.name.startswith("torch.cuda") for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        own = module == "torch" and any(alias.name == "cuda" for alias in node.names)
        return own or module.startswith("torch.cuda")
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "import_module"):
        given = [item.value for item in node.args if isinstance(item, ast.Constant)]
        return bool({"cuda", "torch.cuda"}.intersection(given))
    return False


@pytest.mark.parametrize(
    "text",
    ["torch.cuda.is_available()", "self.torch.cuda", "import torch.cuda.nvtx",
     "from torch import cuda", "from torch.cuda import Event", "getattr(torch, 'cuda')",
     "import_module('torch.cuda')"],
)  # fmt: skip
def test_all_ways_to_torch_cuda_are_seen(text: str) -> None:
    assert any(map(names_torch_cuda, ast.walk(ast.parse(text))))


def test_replays_of_graphs_are_seen_until_they_are_no_longer_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[str] = []

    class Graph:
        def replay(self) -> None:
            ran.append("replayed")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    original = Graph.replay
    undo = Cuda().watch_graphs(lambda: ran.append("seen"))
    Graph().replay()
    undo()
    assert Graph.replay is original
    Graph().replay()
    assert ran == ["seen", "replayed", "replayed"]
    # Nothing of the kind elsewhere.
    Xpu().watch_graphs(lambda: ran.append("seen"))()
    assert len(ran) == 3


def test_torch_cuda_stands_in_its_home_alone() -> None:
    found = set()
    for path in SOURCE.rglob("*.py"):
        if any(map(names_torch_cuda, ast.walk(ast.parse(path.read_text())))):
            found.add(path.relative_to(SOURCE).as_posix())
    homes = {next((home for home in HOME if path.startswith(home)), path) for path in found}
    assert homes == HOME


def test_a_profiler_is_stopped_though_its_range_cannot_end() -> None:
    asked: list[str] = []

    def fails(what: str) -> Any:
        def ask(*_: object) -> None:
            asked.append(what)
            raise RuntimeError("CUDA error: unspecified launch failure")

        return ask

    class Range:
        __exit__ = fails("range")

    profiler = TraceProfiler("xpu", "XPU")
    profiler._range = Range()
    profiler._profile = SimpleNamespace(stop=fails("profile"))
    profiler.abandon()
    profiler.abandon()
    assert asked == ["range", "profile"]


def test_steps_are_marked_and_what_comes_before_them_is_not_in_the_trace(tmp_path: Path) -> None:
    profiler = TraceProfiler("cpu", "CPU")
    launched: list[bool | None] = []
    ask = profiler._launch_some

    def launch() -> None:
        launched.append(profiler_runs())
        ask()

    profiler._launch_some = launch  # type: ignore[method-assign]
    for _ in range(2):
        profiler.start()
        torch.ones(4, 4) @ torch.ones(4, 4)
        profiler.mark()
        torch.ones(4, 4) + 1
        profiler.mark()
        assert not profiler.interrupted
        profiler.stop(tmp_path / "trace.json")
        found = read_trace(tmp_path / "trace.json")
        names = [found.names[name] for name in found.host.name]
        assert names.count("aten::ones") == 3 and "aten::zeros" not in names
        assert names.count("aten::mm") == names.count("aten::add") == 1
        assert len(found.steps) == 3
    # Nothing is kept yet: the profiler is prepared, and on afterwards alone.
    assert launched == [False, False]
    profiler.start()
    with pytest.raises(RuntimeError, match="another profiler"):
        TraceProfiler("cpu", "CPU").start()
    profiler.abandon()
    assert profiler_runs() is False


def test_a_device_that_fails_before_the_steps_does_not_keep_the_profiler_from_starting(
    tmp_path: Path,
) -> None:
    profiler = TraceProfiler("cpu", "CPU")

    def fails() -> None:
        raise RuntimeError("CUDA error: unspecified launch failure")

    profiler._launch_some = fails  # type: ignore[method-assign]
    profiler.start()
    profiler.mark()
    profiler.stop(tmp_path / "trace.json")
    assert len(read_trace(tmp_path / "trace.json").steps) == 2
