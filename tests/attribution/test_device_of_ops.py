from __future__ import annotations

from pathlib import Path

from gobrrr.attribution.device import DeviceAttribution, attribute_device
from gobrrr.attribution.device_of_ops import with_operators_as_kernels
from gobrrr.capture.trace import read_trace
from gobrrr.timeline.data import Timeline
from gobrrr.work import work_of
from trace_writing import WrittenTrace

MM = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
ADD = {"Input Dims": [[64, 64], [64, 64], []], "Input type": ["float", "float", "Scalar"],
       "Concrete Inputs": ["", "", "1"]}  # fmt: skip
VIEW = {"Input Dims": [[64, 64], []], "Input type": ["float", "ScalarList"],
        "Concrete Inputs": ["", "[4096]"]}  # fmt: skip


def attributed(trace: WrittenTrace, tmp_path: Path) -> tuple[Timeline, DeviceAttribution]:
    timeline = with_operators_as_kernels(read_trace(trace.write(tmp_path)), work_of)
    return timeline, attribute_device(timeline, None, work_of)


def test_operators_that_do_work_are_the_kernels(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 200)
    trace.op("aten::matmul", 10, 50, **MM)
    trace.op("aten::mm", 15, 40, **MM)  # the work is here
    trace.op("aten::view", 70, 5, **VIEW)
    trace.op("aten::add", 80, 20, **ADD)
    trace.note("enumerate(DataLoader)#x.__next__", 120, 30)
    timeline, found = attributed(trace, tmp_path)
    assert [timeline.names[n] for n in timeline.kernels.name] == ["aten::mm", "aten::add"]
    leaves = {k: v / 1000 for k, v in found.attribution.leaves_ns.items() if v}
    # The last window ends with its last kernel, at 100; a CPU's with its last host span, at 200.
    assert leaves == {
        "compute.unmodelled": 40,
        "memory.unmodelled": 20,
        "overhead.dispatch": 10 + 5,  # matmul around mm; view
        "overhead.data_loading": 30,
        "overhead.python": 200 - 40 - 20 - 15 - 30,
    }
    assert timeline.device.kind == "cpu"
    assert any("CPU work" in notice for notice in timeline.notices)


def test_operators_of_other_threads_are_outside(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 100)
    trace.op("aten::add", 10, 20, **ADD)
    trace.op("aten::mm", 20, 50, tid=8, **MM)
    timeline, _ = attributed(trace, tmp_path)
    assert len(timeline.kernels) == 1


def test_autograds_thread_belongs_to_the_step(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 100)
    trace.op("aten::add", 10, 20, **ADD)
    trace.op("autograd::engine::evaluate_function: MmBackward0", 40, 30, tid=9)
    trace.op("MmBackward0", 41, 28, tid=9)
    trace.op("aten::mm", 45, 20, tid=9, **MM)
    timeline, found = attributed(trace, tmp_path)
    assert [timeline.names[n] for n in timeline.kernels.name] == ["aten::add", "aten::mm"]
    assert found.attribution.leaves_ns["compute.unmodelled"] == 20_000


def test_a_custom_operator_that_nobody_knows_may_do_work(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 100)
    trace.op("my_ops::attention", 10, 20)
    trace.op("TorchDynamo Cache Lookup", 40, 20)
    timeline, found = attributed(trace, tmp_path)
    assert [timeline.names[n] for n in timeline.kernels.name] == ["my_ops::attention"]
    assert found.attribution.leaves_ns["overhead.dispatch"] == 20_000
