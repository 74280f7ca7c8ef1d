from __future__ import annotations

from pathlib import Path

import numpy as np

from gobrrr.recordings.traces import read_trace
from gobrrr.timeline.data import Collective, HostKind, Phase, Timeline
from gobrrr.timeline.nesting import parents
from trace_writing import WrittenTrace


def op_names(timeline: Timeline) -> list[str | None]:
    """The operator of each kernel, by name."""
    host, names = timeline.host, timeline.names
    return [None if op < 0 else names[host.name[op]] for op in timeline.kernels.op.tolist()]


def text(timeline: Timeline, column: np.ndarray, row: int) -> str | None:
    return timeline.names[column[row]] if column[row] >= 0 else None


def row_of(timeline: Timeline, name: str) -> int:
    return next(i for i, n in enumerate(timeline.host.name) if timeline.names[n] == name)


def test_a_kernel_belongs_to_the_innermost_operator_around_its_launch(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.op("aten::linear", 0, 100)
    trace.op("aten::t", 5, 10)
    trace.op("aten::addmm", 20, 60)
    trace.launch("gemm", 30, 200, 50, correlation=1)
    trace.launch("bias", 85, 260, 10, correlation=2)  # in linear, after addmm
    trace.launch("alone", 120, 280, 10, correlation=3)  # in no operator
    timeline = read_trace(trace.write(tmp_path))
    assert op_names(timeline) == ["aten::addmm", "aten::linear", None]


def test_the_nesting_that_a_reader_keeps_is_that_of_its_spans(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.op("aten::linear", 0, 100)
    trace.op("aten::t", 5, 10)
    trace.op("aten::mm", 0, 100, tid=8)
    trace.launch("gemm", 30, 200, 50, correlation=1)
    host = read_trace(trace.write(tmp_path)).host
    assert host.parent.tolist() == parents(host.start_ns, host.end_ns, host.thread).tolist()
    inner = host.take(host.parent >= 0)
    assert len(inner) == 2
    assert inner.parent.tolist() == [-1, -1]


def test_an_operator_of_another_thread_is_not_around_a_launch(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.op("aten::mm", 0, 100, tid=8)
    trace.launch("gemm", 30, 200, 50, correlation=1, tid=7)
    assert op_names(read_trace(trace.write(tmp_path))) == [None]


def test_kernels_of_a_graph_share_its_launch(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.call("cudaGraphLaunch", 10, 5, correlation=9)
    for i in range(3):
        trace.kernel(f"k{i}", 20 + 10 * i, 5, 9)
    timeline = read_trace(trace.write(tmp_path))
    assert timeline.kernels.launch.tolist() == [0, 0, 0]
    assert timeline.host.kind.tolist() == [HostKind.LAUNCH]
    assert len(timeline.kernels) == 3


def test_flows_link_where_there_is_no_correlation(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.op("aten::mm", 0, 20)
    trace.add("cuda_runtime", "cudaLaunchKernel", 5, 2)
    trace.kernel("gemm", 40, 5)
    flow = {"cat": "ac2g", "name": "ac2g", "id": 77}
    trace.events.append({**flow, "ph": "s", "pid": 7, "tid": 7, "ts": 5})
    trace.events.append({**flow, "ph": "f", "pid": 0, "tid": 7, "ts": 40, "bp": "e"})
    timeline = read_trace(trace.write(tmp_path))
    assert timeline.kernels.launch.tolist() == [1]
    assert op_names(timeline) == ["aten::mm"]


def test_external_id_links_where_the_launch_is_not_recorded(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.op("aten::mm", 0, 20, **{"External id": 4})
    trace.kernel("gemm", 40, 5, 1000, **{"External id": 4})
    # PyTorch 1.12 repeats the correlation here, which says nothing about an operator.
    trace.kernel("other", 60, 5, 4, **{"External id": 4})
    timeline = read_trace(trace.write(tmp_path))
    assert timeline.kernels.launch.tolist() == [-1, -1]
    assert op_names(timeline) == ["aten::mm", None]


def test_a_repeated_id_links_to_the_latest_call_before_the_kernel(tmp_path: Path) -> None:
    trace = WrittenTrace()
    for i, called in enumerate((0, 100, 200)):
        trace.op(f"op{i}", called, 20)
        trace.launch("k", called + 5, called + 50, 5, correlation=1)
    assert op_names(read_trace(trace.write(tmp_path))) == ["op0", "op1", "op2"]


def test_kinds_of_runtime_calls(tmp_path: Path) -> None:
    expected = {
        "cudaLaunchKernel": HostKind.LAUNCH,
        "cudaLaunchKernelExC": HostKind.LAUNCH,
        "cuLaunchKernelEx": HostKind.LAUNCH,
        "cudaGraphLaunch": HostKind.LAUNCH,
        "hipExtModuleLaunchKernel": HostKind.LAUNCH,
        "hipGraphLaunch": HostKind.LAUNCH,
        "cudaMemcpyAsync": HostKind.LAUNCH,
        "cudaMemsetAsync": HostKind.LAUNCH,
        "hipMemcpyWithStream": HostKind.SYNCHRONISE,
        "cudaMemcpy": HostKind.SYNCHRONISE,
        "cudaStreamSynchronize": HostKind.SYNCHRONISE,
        "cudaEventSynchronize": HostKind.SYNCHRONISE,
        "hipDeviceSynchronize": HostKind.SYNCHRONISE,
        "cudaMalloc": HostKind.ALLOCATE,
        "cudaMallocAsync": HostKind.ALLOCATE,
        "hipFree": HostKind.ALLOCATE,
        "cudaHostAlloc": HostKind.ALLOCATE,
        "cuMemCreate": HostKind.ALLOCATE,
        "cudaStreamWaitEvent": HostKind.RUNTIME,
        "cudaEventQuery": HostKind.RUNTIME,
        "cudaFuncSetAttribute": HostKind.RUNTIME,
        "hipGetDevicePropertiesR0600": HostKind.RUNTIME,
    }
    trace = WrittenTrace()
    for i, name in enumerate(expected):
        trace.call(name, 10 * i, 5, correlation=i)
    timeline = read_trace(trace.write(tmp_path))
    got = {
        timeline.names[n]: HostKind(k)
        for n, k in zip(timeline.host.name.tolist(), timeline.host.kind.tolist())
    }
    assert got == expected


def test_a_copy_with_pageable_memory_waits(tmp_path: Path) -> None:
    trace = WrittenTrace()
    for i, name in enumerate(
        (
            "Memcpy DtoH (Device -> Pageable)",
            "Memcpy HtoD (Pageable -> Device)",
            "Memcpy HtoD (Pinned -> Device)",
            "Memcpy DtoD (Device -> Device)",
        )
    ):
        trace.call("cudaMemcpyAsync", 100 * i, 50, correlation=i)
        trace.kernel(name, 100 * i + 20, 10, i, cat="gpu_memcpy")
    wait, launch = HostKind.SYNCHRONISE, HostKind.LAUNCH
    kinds = read_trace(trace.write(tmp_path)).host.kind.tolist()
    assert kinds == [wait, wait, launch, launch]


def test_special_ranges(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 10)
    trace.op("enumerate(DataLoader)#x.__next__", 20, 10)  # PyTorch 1.9 calls it an operator
    trace.python("torch/utils/data/dataloader.py(700): __next__", 40, 10)
    trace.note("_compile.compile_inner (dynamo_timed)", 60, 10)
    trace.python("torch/_dynamo/convert_frame.py(500): _compile", 80, 10)
    trace.note("Python GC", 100, 10)
    trace.op("ProfilerStep#4", 120, 10)
    loading, compiling = HostKind.DATA_LOADING, HostKind.COMPILATION
    assert read_trace(trace.write(tmp_path)).host.kind.tolist() == [
        loading, loading, loading, compiling, compiling, HostKind.GARBAGE_COLLECTION,
        HostKind.ANNOTATION,
    ]  # fmt: skip


def test_modules_and_lines_from_python_frames(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.python("train.py(10): main", 0, 1000)
    trace.python("nn.Module: Net_0", 10, 500)
    trace.python("torch/nn/modules/module.py(1743): _call_impl", 11, 400)
    trace.python("nets/net.py(33): forward", 12, 390)
    trace.python("nn.Module: Linear_3", 20, 100)
    trace.python("torch/nn/modules/linear.py(124): forward", 21, 90)
    trace.python("<built-in function linear>", 22, 80)
    trace.op("aten::linear", 23, 50)
    trace.op("aten::add", 600, 10)
    timeline = read_trace(trace.write(tmp_path))
    host = timeline.host
    linear, add = row_of(timeline, "aten::linear"), row_of(timeline, "aten::add")
    assert text(timeline, host.module, linear) == "Net_0.Linear_3"
    assert text(timeline, host.source, linear) == "nets/net.py:33 in forward"
    assert text(timeline, host.module, add) is None
    assert text(timeline, host.source, add) == "train.py:10 in main"


def test_lines_from_recorded_call_stacks(tmp_path: Path) -> None:
    trace = WrittenTrace()
    stack = (
        "/home/u/env/lib/python3.7/site-packages/torch/nn/functional.py(9): linear;"
        "/home/u/net.py(7): forward;/home/u/train.py(3): <module>"
    )
    trace.op("aten::linear", 0, 50, **{"Call stack": stack})
    trace.op("aten::addmm", 10, 20, **{"Call stack": ""})
    timeline = read_trace(trace.write(tmp_path))
    for row in (0, 1):
        assert text(timeline, timeline.host.source, row) == "/home/u/net.py:7 in forward"


def backward_trace() -> WrittenTrace:
    trace = WrittenTrace()
    trace.python("train.py(5): step", 0, 900)
    trace.python("nn.Module: Net_0", 10, 100)
    trace.op("aten::linear", 20, 60, **{"Sequence number": 4, "Fwd thread id": 0})
    trace.op("aten::addmm", 30, 40, **{"Sequence number": 4, "Fwd thread id": 0})
    node = {"Sequence number": 4, "Fwd thread id": 1}
    trace.op("autograd::engine::evaluate_function: AddmmBackward0", 300, 90, tid=9, **node)
    trace.op("AddmmBackward0", 310, 70, tid=9, **node)
    trace.op("aten::mm", 320, 50, tid=9)
    trace.launch("gemm", 330, 400, 50, correlation=1, tid=9)
    trace.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 395, 9, tid=9)
    trace.note("Optimizer.step#SGD.step", 600, 100)
    trace.op("aten::add_", 610, 20)
    return trace


def test_backward_inherits_module_and_line_from_its_forward(tmp_path: Path) -> None:
    timeline = read_trace(backward_trace().write(tmp_path))
    mm = row_of(timeline, "aten::mm")
    assert text(timeline, timeline.host.module, mm) == "Net_0"
    assert text(timeline, timeline.host.source, mm) == "train.py:5 in step"


def test_phases(tmp_path: Path) -> None:
    timeline = read_trace(backward_trace().write(tmp_path))
    phase = {
        timeline.names[n]: Phase(p)
        for n, p in zip(timeline.host.name.tolist(), timeline.host.phase.tolist())
    }
    assert phase["aten::linear"] == phase["aten::addmm"] == Phase.FORWARD
    assert phase["aten::mm"] == phase["cudaLaunchKernel"] == Phase.BACKWARD
    assert phase["aten::add_"] == phase["Optimizer.step#SGD.step"] == Phase.OPTIMIZER
    assert phase["train.py(5): step"] == Phase.OTHER


def test_backward_flows_stand_in_for_sequence_numbers(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.python("nn.Module: Net_0", 0, 100)
    trace.op("aten::addmm", 10, 40)
    trace.op("autograd::engine::evaluate_function: AddmmBackward0", 300, 90, tid=9)
    flow = {"cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 7}
    trace.events.append({**flow, "ph": "s", "tid": 7, "ts": 10})
    trace.events.append({**flow, "ph": "f", "tid": 9, "ts": 300})
    timeline = read_trace(trace.write(tmp_path))
    row = row_of(timeline, "autograd::engine::evaluate_function: AddmmBackward0")
    assert text(timeline, timeline.host.module, row) == "Net_0"


def test_old_backward_nodes_have_no_range_of_autograd(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.op("aten::addmm", 0, 40)
    trace.op("AddmmBackward", 100, 40, tid=9)
    trace.op("aten::mm", 110, 20, tid=9)
    trace.op("torch::autograd::AccumulateGrad", 150, 5, tid=9)
    trace.op("aten::add_", 151, 2, tid=9)
    phases = read_trace(trace.write(tmp_path)).host.phase.tolist()
    assert phases == [Phase.FORWARD] + [Phase.BACKWARD] * 4


def test_collectives_and_what_they_move(tmp_path: Path) -> None:
    trace = WrittenTrace()
    comms = {
        "Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000,
        "dtype": "BFloat16", "Group size": 8,
    }  # fmt: skip
    trace.op("record_param_comms", 0, 20, **comms)
    trace.launch("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", 5, 40, 9, 1, stream=4)
    trace.launch("gemm", 25, 60, 9, 2)
    timeline = read_trace(trace.write(tmp_path))
    assert timeline.kernels.kind.tolist() == [1, 0]
    assert timeline.kernels.bytes_moved.tolist() == [2000, -1]  # 1000 elements of 2 bytes
    assert timeline.kernels.collective.tolist() == [0, -1]
    assert timeline.collectives[0] == Collective(
        "allreduce", bytes_in=2000, bytes_out=2000, dtype="bfloat16", group_size=8, group=None
    )


def test_calls_of_a_group_are_numbered_by_the_kernel_or_by_its_operator(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.op("record_param_comms", 0, 10, **{"Collective name": "allreduce", "Seq": 7})
    trace.launch("ncclDevKernel_AllReduce(x)", 1, 20, 9, 1)
    trace.call("cudaLaunchKernel", 50, 2, 2)
    own = {"Collective name": "allreduce", "Seq": 8}
    trace.kernel("ncclDevKernel_AllReduce(x)", 60, 9, 2, **own)
    trace.launch("gemm", 80, 90, 9, 3)
    numbers = read_trace(trace.write(tmp_path)).kernels.call_number
    assert numbers is not None
    assert numbers.tolist() == [7, 8, -1]
