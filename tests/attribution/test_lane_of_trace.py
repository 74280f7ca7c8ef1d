from __future__ import annotations

from pathlib import Path

from gobrrr.attribution.cpu.attribute import CpuAttribution, attribute_cpu
from gobrrr.attribution.cpu.lane_of_trace import TraceLane, lane_of_trace
from gobrrr.attribution.other_threads import concurrent_ops
from gobrrr.pipeline.trace import diagnose_trace
from gobrrr.recordings.traces import read_trace
from gobrrr.reports.terminal import Options, report_text
from gobrrr.work import work_of
from trace_writing import WrittenTrace

MM = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
ADD = {"Input Dims": [[64, 64], [64, 64], []], "Input type": ["float", "float", "Scalar"],
       "Concrete Inputs": ["", "", "1"]}  # fmt: skip
VIEW = {"Input Dims": [[64, 64], []], "Input type": ["float", "ScalarList"],
        "Concrete Inputs": ["", "[4096]"]}  # fmt: skip


def attributed(trace: WrittenTrace, tmp_path: Path) -> tuple[TraceLane, CpuAttribution]:
    lane = lane_of_trace(read_trace(trace.write(tmp_path)), work_of)
    return lane, attribute_cpu(lane.capture, lane.works, None)


def names_of(lane: TraceLane) -> list[str]:
    return [op.call.name for op in lane.capture.recorded]


def test_operators_that_do_work_are_the_kernels(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 200)
    trace.op("aten::matmul", 10, 50, **MM)
    trace.op("aten::mm", 15, 40, **MM)  # the work is here
    trace.op("aten::view", 70, 5, **VIEW)
    trace.op("aten::add", 80, 20, **ADD)
    trace.note("enumerate(DataLoader)#x.__next__", 120, 30)
    lane, found = attributed(trace, tmp_path)
    assert names_of(lane) == ["aten::mm", "aten::add"]
    leaves = {k: v / 1000 for k, v in found.attribution.leaves_ns.items() if v}
    # The last window ends with its last kernel, at 100; a CPU's with its last host span, at 200.
    assert leaves == {
        "compute.unmodelled": 40,
        "memory.unmodelled": 20,
        "overhead.dispatch": 10 + 5,  # matmul around mm; view
        "overhead.data_loading": 30,
        "overhead.python": 200 - 40 - 20 - 15 - 30,
    }
    assert lane.capture.timeline.device.kind == "cpu"
    assert any("CPU work" in notice for notice in lane.capture.timeline.notices)


def test_without_shapes_an_operator_with_a_formula_is_the_kernel(tmp_path: Path) -> None:
    """As torch records by default: what an operator does inside must not make it dispatch."""
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 200)
    trace.op("aten::matmul", 10, 90)
    trace.op("aten::mm", 15, 80)
    trace.op("aten::resize_", 20, 1)
    trace.op("aten::sum", 110, 40)
    trace.op("aten::as_strided", 112, 1)
    lane, found = attributed(trace, tmp_path)
    assert names_of(lane) == ["aten::mm", "aten::sum"]
    leaves = {k: v / 1000 for k, v in found.attribution.leaves_ns.items() if v}
    assert leaves["compute.unmodelled"] == 80
    assert leaves["memory.unmodelled"] == 40
    assert leaves["overhead.dispatch"] == 10


def test_operators_of_other_threads_are_outside(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 100)
    trace.op("aten::add", 10, 20, **ADD)
    trace.op("aten::mm", 20, 50, tid=8, **MM)
    trace.op("aten::view", 30, 5, tid=8, **VIEW)  # inside it
    trace.op("aten::stack", 90, 30, tid=8)
    lane, _ = attributed(trace, tmp_path)
    assert len(lane.capture.recorded) == 1
    # The window ends with its mark, at 100: 10 of the 30 us are within.
    beside = concurrent_ops(lane.capture.timeline)
    assert [(op.name, op.duration_ns) for op in beside] == [
        ("aten::mm", 50_000), ("aten::stack", 10_000),
    ]  # fmt: skip
    assert len({op.thread for op in beside}) == 1


def test_they_are_listed_in_the_diagnosis(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 100)
    trace.op("aten::add", 10, 20, **ADD)
    trace.op("aten::mm", 20, 50, tid=8, **MM)
    found = diagnose_trace([trace.write(tmp_path)])
    assert [(op.name, op.time_s) for op in found.concurrent] == [("aten::mm", 50e-6)]
    assert "Other threads and devices, not part" in report_text(found, Options(verbose=True))


def test_autograds_thread_belongs_to_the_step(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 100)
    trace.op("aten::add", 10, 20, **ADD)
    trace.op("autograd::engine::evaluate_function: MmBackward0", 40, 30, tid=9)
    trace.op("MmBackward0", 41, 28, tid=9)
    trace.op("aten::mm", 45, 20, tid=9, **MM)
    lane, found = attributed(trace, tmp_path)
    assert names_of(lane) == ["aten::add", "aten::mm"]
    assert found.attribution.leaves_ns["compute.unmodelled"] == 20_000


def test_a_custom_operator_that_nobody_knows_may_do_work(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 100)
    trace.op("my_ops::attention", 10, 20)
    trace.op("TorchDynamo Cache Lookup", 40, 20)
    lane, found = attributed(trace, tmp_path)
    assert names_of(lane) == ["my_ops::attention"]
    assert found.attribution.leaves_ns["overhead.dispatch"] == 20_000


def test_alike_operators_are_one_op_with_their_calls(tmp_path: Path) -> None:
    trace = WrittenTrace()
    for step in range(2):
        trace.note(f"ProfilerStep#{step}", 200 * step, 200)
        for at in (10, 50, 90):
            trace.op("aten::mm", 200 * step + at, 30, **MM)
    lane, found = attributed(trace, tmp_path)
    assert names_of(lane) == ["aten::mm"]
    assert found.calls.tolist() == [3]
    assert found.attribution.leaves_ns["compute.unmodelled"] == 90_000
    assert found.attribution.step_ns == 200_000


def test_a_python_frame_inside_an_operator_is_python_and_an_operator_inside_that_is_not(
    tmp_path: Path,
) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 200)
    trace.python("train.py(3): step", 0, 200)
    trace.op("MyFunction", 20, 100)
    trace.python("train.py(9): forward", 40, 60)
    trace.op("aten::mm", 50, 30, **MM)
    _, found = attributed(trace, tmp_path)
    leaves = {k: v / 1000 for k, v in found.attribution.leaves_ns.items() if v}
    assert leaves == {
        "compute.unmodelled": 30,
        "overhead.dispatch": 100 - 60,  # MyFunction around the frame
        "overhead.python": 100 + 30,  # beside MyFunction, and the frame around mm
    }


def test_the_outermost_operator_that_is_no_composite_does_the_work(tmp_path: Path) -> None:
    # addmm copies its bias into the result first; linear only calls addmm.
    addmm = {"Input Dims": [[64], [64, 64], [64, 64], [], []],
             "Input type": ["float", "float", "float", "Scalar", "Scalar"],
             "Concrete Inputs": ["", "", "", "1", "1"]}  # fmt: skip
    copy = {"Input Dims": [[64, 64], [64, 64], []], "Input type": ["float", "float", "Scalar"],
            "Concrete Inputs": ["", "", "False"]}  # fmt: skip
    linear = {"Input Dims": [[64, 64], [64, 64], [64]], "Input type": ["float", "float", "float"]}
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 200)
    trace.op("aten::linear", 10, 100, **linear)
    trace.op("aten::addmm", 20, 80, **addmm)
    trace.op("aten::copy_", 30, 10, **copy)
    lane, found = attributed(trace, tmp_path)
    assert names_of(lane) == ["aten::addmm"]
    assert found.attribution.leaves_ns["compute.unmodelled"] == 80_000
    assert found.attribution.leaves_ns["overhead.dispatch"] == 20_000
