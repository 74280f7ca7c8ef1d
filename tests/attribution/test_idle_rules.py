from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gobrrr.attribution.device.idle import CAUSE_LEAVES, find_idle, summarise_idle
from gobrrr.recordings.traces import read_trace
from gobrrr.timeline import intervals
from gobrrr.timeline.data import Timeline
from gobrrr.timeline.nesting import parents
from trace_writing import WrittenTrace


def causes(trace: WrittenTrace, tmp_path: Path) -> list[tuple[float, float, str]]:
    """(start, end, cause) in microseconds, neighbours of one cause joined."""
    timeline = read_trace(trace.write(tmp_path))
    pieces = idle_of(timeline)
    found: list[tuple[float, float, str]] = []
    for low, high, cause in zip(
        (pieces.start_ns / 1000).tolist(), (pieces.end_ns / 1000).tolist(), pieces.cause.tolist()
    ):
        name = CAUSE_LEAVES[cause].removeprefix("overhead.")
        if found and found[-1][1] == low and found[-1][2] == name:
            found[-1] = (found[-1][0], high, name)
        else:
            found.append((low, high, name))
    return found


def idle_of(timeline: Timeline):
    kernels = timeline.kernels
    return find_idle(
        timeline, intervals.union(kernels.start_ns, kernels.end_ns), parents_of(timeline)
    )


def parents_of(timeline: Timeline):
    host = timeline.host
    return parents(host.start_ns, host.end_ns, host.thread)


def test_after_the_call_returned_it_is_launch_latency(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.kernel("first", 0, 10, 100)
    trace.op("aten::mm", 12, 10)
    trace.launch("gemm", 16, 30, 5, correlation=1)  # the call: [16, 18)
    trace.op("aten::relu", 23, 4)  # the thread is already in the next operator
    trace.note("ProfilerStep#1", 0, 40)
    assert causes(trace, tmp_path) == [
        (10, 12, "python"), (12, 16, "dispatch"), (16, 30, "launch"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "cause"),
    [
        ("cudaStreamSynchronize", "synchronisation"),
        ("hipMemcpyWithStream", "synchronisation"),
        ("cudaMalloc", "allocation"),
        ("cudaLaunchKernel", "launch"),
        ("cudaFuncSetAttribute", "dispatch"),  # a call of no special kind belongs to its operator
    ],
)
def test_inside_a_runtime_call(tmp_path: Path, call: str, cause: str) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 100)
    trace.op("aten::item", 0, 40)
    trace.call(call, 10, 20, 50)
    trace.launch("k", 50, 52, 5, correlation=1)
    expected = [(0.0, 10.0, "dispatch"), (10.0, 30.0, cause), (30.0, 40.0, "dispatch")]
    if cause == "dispatch":
        expected = [(0.0, 40.0, "dispatch")]
    assert causes(trace, tmp_path) == [*expected, (40, 50, "python"), (50, 52, "launch")]


def test_ranges_that_enclose(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 100)
    trace.note("enumerate(DataLoader)#x.__next__", 0, 20)
    trace.op("aten::stack", 5, 10)  # an operator that the loader calls is data loading
    trace.note("Python GC", 20, 5)
    trace.note("entire_frame_compile (dynamo_timed)", 30, 10)
    trace.op("aten::empty", 32, 4)
    trace.launch("k", 50, 52, 5, correlation=1)
    assert causes(trace, tmp_path) == [
        (0, 20, "data_loading"), (20, 25, "garbage_collection"), (25, 30, "python"),
        (30, 40, "compilation"), (40, 50, "python"), (50, 52, "launch"),
    ]  # fmt: skip


def test_python_inside_an_operator_is_python(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 100)
    trace.python("train.py(1): main", 0, 90)
    trace.op("MyFunction", 10, 30)
    trace.python("train.py(9): forward", 15, 20)
    trace.launch("k", 50, 52, 5, correlation=1)
    assert causes(trace, tmp_path) == [
        (0, 10, "python"), (10, 15, "dispatch"), (15, 35, "python"), (35, 40, "dispatch"),
        (40, 50, "python"), (50, 52, "launch"),
    ]  # fmt: skip


def test_the_thread_that_launched_the_ending_kernel_decides(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 100)
    trace.op("aten::main", 0, 100, tid=7)
    trace.op("x", 0, 1, tid=9)
    trace.call("cudaStreamSynchronize", 20, 20, 50, tid=9)
    trace.launch("k", 45, 50, 5, correlation=1, tid=9)
    # Where the other thread has nothing on, what the step's thread did counts.
    assert causes(trace, tmp_path) == [
        (0, 20, "dispatch"), (20, 40, "synchronisation"), (40, 45, "dispatch"), (45, 50, "launch"),
    ]  # fmt: skip


def test_a_kernel_without_a_launch_asks_the_steps_thread(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 100)
    trace.op("aten::mm", 5, 10)
    trace.kernel("stray", 20, 5)
    assert causes(trace, tmp_path) == [(0, 5, "python"), (5, 15, "dispatch"), (15, 20, "python")]


def test_before_anything_was_recorded_the_cause_is_unknown(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.kernel("left over", 0, 5)
    trace.note("ProfilerStep#1", 10, 90)
    trace.launch("k", 20, 22, 5, correlation=1)
    assert causes(trace, tmp_path) == [
        (5, 10, "unexplained"), (10, 20, "python"), (20, 22, "launch"),
    ]  # fmt: skip


def test_gaps_between_a_graphs_kernels_are_the_devices_own(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 100)
    trace.call("cudaGraphLaunch", 2, 3, 9)
    for i in range(3):
        trace.kernel("k", 10 + 10 * i, 8, 9)
    assert causes(trace, tmp_path) == [
        (0, 2, "python"), (2, 10, "launch"), (18, 20, "kernel_gap"), (28, 30, "kernel_gap"),
    ]  # fmt: skip


def test_without_host_events_idle_is_unexplained(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.kernel("a", 0, 10)
    trace.kernel("b", 15, 10)
    assert causes(trace, tmp_path) == [(10, 15, "unexplained")]


def test_a_late_stream_does_not_make_the_device_idle(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 100)
    trace.kernel("a", 0, 30, stream=7)
    trace.launch("b", 5, 20, 30, correlation=1, stream=8)
    assert causes(trace, tmp_path) == []


def test_idle_by_line_and_by_blocking_call(tmp_path: Path) -> None:
    trace = WrittenTrace()
    for step in range(2):
        base = 1000 * step
        trace.note(f"ProfilerStep#{step}", base, 900)
        trace.python("train.py(7): step", base, 900)
        trace.op("aten::item", base + 10, 60)
        trace.call("cudaStreamSynchronize", base + 20, 40, 50 + step)
        trace.launch("k", base + 100, base + 105, 895, correlation=step)
    timeline = read_trace(trace.write(tmp_path))
    gaps = summarise_idle(timeline, idle_of(timeline), steps=2, parent=parents_of(timeline))
    found = {(g.leaf.removeprefix("overhead."), g.source, g.detail): g.duration_ns for g in gaps}
    line = "train.py:7 in step"
    # per step: python 10 + 30; dispatch 10 + 10; blocked 40; launch 5
    assert found == {
        ("python", line, None): 40_000,
        ("synchronisation", line, "cudaStreamSynchronize in aten::item"): 40_000,
        ("dispatch", line, None): 20_000,
        ("launch", line, None): 5000,
    }


def test_pieces_tile_the_idle_time(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 1000)
    for i in range(20):
        trace.op("aten::mm", 40 * i, 30)
        trace.launch("k", 40 * i + 5, 40 * i + 20, 11, correlation=i, tid=7 + i % 2)
    timeline = read_trace(trace.write(tmp_path))
    pieces = idle_of(timeline)
    busy = intervals.union(timeline.kernels.start_ns, timeline.kernels.end_ns)
    low, high = timeline.steps[0]
    assert int((pieces.end_ns - pieces.start_ns).sum()) == int(high - low) - busy.total
    assert (np.diff(pieces.start_ns) > 0).all()
    assert (pieces.start_ns[1:] >= pieces.end_ns[:-1]).all()


def test_data_loading_is_named_by_the_loaders_range(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 900)
    trace.python("torch/utils/data/dataloader.py(720): __next__", 0, 60)
    trace.note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 10, 40)
    trace.python("torch/utils/data/_utils/collate.py(118): collate", 20, 20)
    trace.launch("k", 60, 62, 100, correlation=1)
    timeline = read_trace(trace.write(tmp_path))
    gaps = summarise_idle(timeline, idle_of(timeline), steps=1, parent=parents_of(timeline))
    found = {g.detail: g.duration_ns for g in gaps if g.leaf == "overhead.data_loading"}
    assert found == {
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__": 40_000,
        "torch/utils/data/dataloader.py(720): __next__": 20_000,
    }
