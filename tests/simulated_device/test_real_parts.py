"""What gobrrr itself brings for GPUs, not its stand-ins, as far as it runs without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from gobrrr.devices.accelerator import AllocatorMeter, EventTimer, TraceProfiler  # noqa: E402
from gobrrr.recordings.traces import read_trace  # noqa: E402
from simulated_device import Accelerator, Hostility, slow  # noqa: E402
from simulated_device.as_torch import behind_torch  # noqa: E402

pytestmark = pytest.mark.torch
US = 1000


@pytest.fixture
def profiler() -> TraceProfiler:
    # An activity that this machine lacks is left out by PyTorch: those of the CPU remain. Named
    # twice, they are refused since 2.13.
    return TraceProfiler("cpu", "CUDA")


@pytest.mark.filterwarnings("ignore:.*is not available, disabling")
def test_the_profiler_marks_steps_and_writes_every_op_once(
    profiler: TraceProfiler, tmp_path: Path
) -> None:
    x = torch.ones(4, 4)
    profiler.start()
    with pytest.raises(RuntimeError, match="another profiler is running"):
        TraceProfiler("cpu", "CUDA").start()
    for _ in range(3):
        torch.mm(x, x).relu()
        profiler.mark()
    assert not profiler.interrupted
    profiler.stop(tmp_path / "trace.json")
    events = [e for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
              if e["ph"] == "X"]  # fmt: skip
    spans = {
        e["name"]: (e["ts"], e["ts"] + e["dur"]) for e in events if e["cat"] == "user_annotation"
    }
    # The last one is what remained between the last mark and the end.
    assert [f"ProfilerStep#{i}" for i in range(4)] == sorted(n for n in spans if "Step#" in n)
    ops = [e for e in events if e["cat"] == "cpu_op" and e["name"] == "aten::mm"]
    assert [op["args"]["Input Dims"] for op in ops] == [[[4, 4], [4, 4]]] * 3
    for step, op in enumerate(ops):
        begin, end = spans[f"ProfilerStep#{step}"]
        assert begin <= op["ts"] and op["ts"] + op["dur"] <= end
    timeline = read_trace(tmp_path / "trace.json")
    assert len(timeline.steps) >= 3 and not len(timeline.kernels)


@pytest.mark.filterwarnings("ignore:.*is not available, disabling")
def test_a_profiler_of_the_programs_own_ends_it_and_is_noticed(profiler: TraceProfiler) -> None:
    profiler.start()
    torch.autograd._disable_profiler()
    assert profiler.interrupted
    profiler.abandon()
    assert not torch.autograd._profiler_enabled()


@pytest.mark.filterwarnings("ignore:.*is not available, disabling")
def test_events_are_no_objects_of_python_once_it_has_ended(
    profiler: TraceProfiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    kept = torch.autograd.profiler_util.FunctionEvent.__init__

    def counted(self: Any, *args: Any, **kwargs: Any) -> None:
        made.append(None)
        kept(self, *args, **kwargs)

    monkeypatch.setattr(torch.autograd.profiler_util.FunctionEvent, "__init__", counted)
    profiler.start()
    for _ in range(100):
        torch.ones(4).add(1)
    profiler.stop(tmp_path / "trace.json")
    assert not made and (tmp_path / "trace.json").stat().st_size > 10_000


@pytest.mark.parametrize("device", [0, 1])
def test_the_timer_times_the_device_that_works(
    device: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(4)
    gpu = Accelerator(table=slow(50 * US), hostile=Hostility(device=device))
    behind_torch(gpu, monkeypatch)
    timer = EventTimer("cuda")
    with gpu:
        kept = torch.neg(x)
        timer.start_block()
        for _ in range(4):
            torch.neg(x)
            timer.mark()
        waited_ns = gpu.machine.now_ns
        lengths = timer.end_block()
        assert gpu.machine.now_ns > waited_ns
    assert kept is not None
    # The first step has its launch before it.
    assert lengths[1:] == [50 * US] * 3


@pytest.mark.parametrize("device", [0, 1])
def test_the_meter_counts_the_device_that_works(
    device: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(1000)
    gpu = Accelerator(table=slow(50 * US), hostile=Hostility(device=device))
    behind_torch(gpu, monkeypatch)
    with gpu:
        kept = x + 1
        meter = AllocatorMeter("cuda", device)
        meter.start_peak()
        (kept * 2).sum()
        assert meter.held_bytes() == 4000
        assert meter.peak_bytes() == 8004
