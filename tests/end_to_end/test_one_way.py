"""A run, a trace of that run, and its prediction replayed: the same leaves by the same rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from gobrrr.attribution.attributed import recorded_step_times  # noqa: E402
from gobrrr.attribution.cpu import CpuAttribution, attribute_cpu, works_on  # noqa: E402
from gobrrr.attribution.cpu_attributed import attributed_lane, attributed_trace_lane  # noqa: E402
from gobrrr.attribution.cpu_causes import causes_of_lane  # noqa: E402
from gobrrr.attribution.cpu_run import works_of  # noqa: E402
from gobrrr.attribution.lane_of_trace import lane_of_trace  # noqa: E402
from gobrrr.capture.cpu_timeline import CpuCapture, build_cpu_capture  # noqa: E402
from gobrrr.capture.op_graph import CaptureOptions, capture_op_graph  # noqa: E402
from gobrrr.capture.op_recorder import OpRecorder  # noqa: E402
from gobrrr.capture.profile import STEP_MARK, split_at_marks  # noqa: E402
from gobrrr.capture.traces import read_trace  # noqa: E402
from gobrrr.devices.ceilings import Ceiling, Ceilings, MemoryLevel  # noqa: E402
from gobrrr.diagnosis.assemble import assemble  # noqa: E402
from gobrrr.diagnosis.schema import Diagnosis  # noqa: E402
from gobrrr.models.host_lane import TYPICAL_HOST, HostCosts  # noqa: E402
from gobrrr.models.kernel_model import Flags  # noqa: E402
from gobrrr.models.target import (  # noqa: E402
    TargetDevice,
    target_device,
    target_of_ceilings,
)
from gobrrr.pipeline.trace import diagnose_trace  # noqa: E402
from gobrrr.prediction.capture_target import capture_target  # noqa: E402
from gobrrr.prediction.costs import CostedOp, cost_graph  # noqa: E402
from gobrrr.prediction.step import predicted_step  # noqa: E402
from gobrrr.prediction.timeline import predicted_timeline  # noqa: E402
from gobrrr.timeline.data import Device, HostKind, KernelKind, Timeline  # noqa: E402
from gobrrr.timeline.ops import OpCall, TensorSpec  # noqa: E402
from gobrrr.work import work_of  # noqa: E402
from trace_writing import WrittenTrace  # noqa: E402

pytestmark = pytest.mark.torch

# Of a step: what lies between the two marks of a step's end, and between the recorder's ops and
# the profiler's.
TOLERANCE = 0.03


def ceilings() -> Ceilings:
    """Slow enough that every op has a roof well under its time."""
    rates = {"matrix.float32": 1e12, "vector.float32": 1e11}
    rows = {name: Ceiling(name, rate, "FLOP/s", "given", "test") for name, rate in rates.items()}
    return Ceilings("a processor", rows, (MemoryLevel("dram", None, ((0.0, 1e11),)),))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[CpuCapture, Timeline]:
    """Some training steps profiled once: as a run sees them, and as their trace does."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.LayerNorm(512), torch.nn.Linear(512, 8)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, foreach=False)
    data = torch.randn(512, 256)

    def step() -> None:
        optimizer.zero_grad()
        net(data).square().mean().backward()
        optimizer.step()

    for _ in range(3):
        step()
    with OpRecorder(roots={"": net}) as recorder:
        step()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True) as profile:
        for i in range(5):
            with torch._C._profiler._RecordFunctionFast(STEP_MARK):
                pass
            with torch.profiler.record_function(f"ProfilerStep#{i}"):
                step()
        with torch._C._profiler._RecordFunctionFast(STEP_MARK):
            pass
    path = tmp_path_factory.mktemp("one_way") / "run.json"
    events = profile.profiler.kineto_results.events()
    starts = [event.start_ns() for event in events if event.name() == STEP_MARK]
    raw = split_at_marks(events, tuple((at, at) for at in starts), ())
    profile.export_chrome_trace(str(path))
    capture = build_cpu_capture(raw, recorder.ops, Device("a processor", "cpu"))
    assert capture.matched_fraction == 1.0
    return capture, read_trace(path)


def diagnosis_of_run(capture: CpuCapture) -> tuple[Diagnosis, CpuAttribution]:
    """The run with what a trace knows of it: no fixed costs, no faults, no profiler's cost."""
    works = works_of(capture.recorded)
    result = attribute_cpu(capture, works, ceilings())
    step = attributed_lane(
        capture, works, result, ceilings(), recorded_step_times(capture.timeline),
        idle=causes_of_lane(capture, result),
    )  # fmt: skip
    return assemble(step, source={"kind": "function"}, environment={}), result


def diagnosis_of_trace(timeline: Timeline) -> Diagnosis:
    lane = lane_of_trace(timeline, work_of)
    result = attribute_cpu(lane.capture, lane.works, ceilings())
    step = attributed_trace_lane(lane, result, ceilings())
    return assemble(step, source={"kind": "trace"}, environment={})


def assert_same(one: Diagnosis, other: Diagnosis, tolerance: float) -> None:
    step_s = sum(one.leaves.values())
    assert sum(other.leaves.values()) == pytest.approx(step_s, rel=tolerance)
    for leaf, time_s in one.leaves.items():
        assert other.leaves[leaf] == pytest.approx(time_s, abs=tolerance * step_s), leaf
    assert (one.regime, one.step.kind) == (other.regime, other.step.kind)
    assert one.mfu == pytest.approx(other.mfu, rel=2 * tolerance)
    assert one.speed_of_light_s == pytest.approx(other.speed_of_light_s, rel=2 * tolerance)


def test_a_run_and_a_trace_of_it_have_the_same_leaves(
    recorded: tuple[CpuCapture, Timeline],
) -> None:
    capture, timeline = recorded
    run, _ = diagnosis_of_run(capture)
    trace = diagnosis_of_trace(timeline)
    assert_same(run, trace, TOLERANCE)
    assert run.step.kind == "training step"
    assert (run.step.basis, trace.step.basis) == ("mean", "mean")
    flops = [row.flops for row in run.ops if row.name == "aten::addmm"]
    assert sorted(row.flops for row in trace.ops if row.name == "aten::addmm") == sorted(flops)
    for found in (run, trace):
        for table in (found.modules, found.lines, found.phases, found.classes):
            assert sum(row.time_s for row in table) == pytest.approx(found.accounted_s, rel=1e-6)


def test_a_run_predicted_from_its_own_times_is_that_run(
    recorded: tuple[CpuCapture, Timeline],
) -> None:
    # Each op costs what it was measured to; the host is one that only dispatches what the run
    # spent outside kernels, divided among the ops.
    capture, _ = recorded
    run, result = diagnosis_of_run(capture)
    works = works_of(capture.recorded)
    shares = result.attribution.kernels
    kernel_s = np.zeros(len(capture.recorded))
    kernel_s[shares.kernel] = shares.owned_ns * 1e-9
    host_s = run.accounted_s - float(kernel_s.sum())
    each_s = host_s / len(capture.recorded)
    target = target_of_ceilings(ceilings(), "cpu")
    ops = [
        CostedOp(op, work, None, float(time_s), 0.0, int(works_on(work)), 1)
        for op, work, time_s in zip(capture.recorded, works, kernel_s)
    ]  # fmt: skip
    host = HostCosts(each_s, each_s, each_s, 0.0, 0.0, 0.0, 0.0, "this test")
    step, of_host = predicted_step(ops, target, host, compiled=False, band=None)
    assert of_host is None
    predicted = assemble(step, source={"kind": "prediction"}, environment={})
    # What no kernel owns is dispatch here: a prediction knows no Python.
    outside = ("overhead.python", "overhead.dispatch")
    both = sum(run.leaves[name] for name in outside)
    run.leaves |= {"overhead.python": 0.0, "overhead.dispatch": both}
    assert_same(run, predicted, 1e-4)


def costed_for_gpu() -> tuple[list[CostedOp], TargetDevice]:
    """A step of kernels long and short that reads its result, on an H100."""
    target = target_device("H100-SXM")

    def make() -> object:
        with torch.device("meta"):
            net = torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.GELU())
            x, y, z = (torch.empty(shape) for shape in ((4096, 2048), (64, 64), (64, 64)))

        def step() -> object:
            small = z
            for _ in range(12):
                small = small + y
            return net(x).sum().item()

        return step

    graph = capture_op_graph(make, capture_target(target), CaptureOptions())
    flags = Flags(tf32_matmul=False, tf32_convolution=False)
    return list(cost_graph(graph, target, flags=flags).ops), target


def written(timeline: Timeline, folder: Path) -> Path:
    """A timeline as the trace that the profiler would have written of it, in microseconds."""
    trace = WrittenTrace(
        deviceProperties=[{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}]
    )
    host, kernels, names = timeline.host, timeline.kernels, timeline.names
    shift = int(host.start_ns.min())

    def us(ns: int) -> float:
        return (ns - shift) / 1000

    begin, end = timeline.steps[0].tolist()
    for row in range(len(host)):
        start, length = us(int(host.start_ns[row])), int(host.end_ns[row] - host.start_ns[row])
        name = names[host.name[row]]
        if host.kind[row] == HostKind.OP:
            trace.op(name, start, length / 1000, **arguments(timeline.calls[host.call[row]]))
        elif host.kind[row] == HostKind.SYNCHRONISE:
            trace.call("cudaStreamSynchronize", start, length / 1000, 10**6 + row)
        else:
            # Inside its op: at its very end it would belong to the next as well.
            trace.call("cudaLaunchKernel", start - 0.002, 0.001, row)
    for k in range(len(kernels)):
        length = int(kernels.end_ns[k] - kernels.start_ns[k]) / 1000
        kind = "gpu_memcpy" if kernels.kind[k] == KernelKind.COPY else "kernel"
        name = "Memcpy DtoH" if kind == "gpu_memcpy" else f"kernel_of_{names[kernels.name[k]]}"
        trace.kernel(name, us(int(kernels.start_ns[k])), length, int(kernels.launch[k]), cat=kind)
    # The window is the device's, which begins while the host is inside an op: on its own thread
    # the mark would hide that op.
    trace.note("ProfilerStep#0", us(begin), (end - begin) / 1000, tid=8)
    return trace.write(folder)


def arguments(call: OpCall) -> dict[str, object]:
    """What ``record_shapes`` would have written of a call's tensors."""
    shapes, types, strides = [], [], []
    for arg in call.args:
        known = isinstance(arg, TensorSpec)
        shapes.append(list(arg.shape) if known else [])
        strides.append(list(arg.strides or ()) if known else [])
        types.append("float" if known else "Scalar" if arg is not None else "")
    values = ["" if isinstance(a, TensorSpec) or a is None else str(a) for a in call.args]
    return {
        "Input Dims": shapes, "Input type": types, "Input Strides": strides,
        "Concrete Inputs": values,
    }  # fmt: skip


def test_a_prediction_written_as_a_trace_is_that_prediction(tmp_path: Path) -> None:
    ops, target = costed_for_gpu()
    # What a recording knows of fixed costs: the device's, not each kernel's.
    ops = [replace(op, fixed_s=op.kernels * target.kernel_fixed_s) for op in ops]
    step, _ = predicted_step(ops, target, TYPICAL_HOST, compiled=False, band=None)
    predicted = assemble(step, source={"kind": "prediction"}, environment={})
    timeline = predicted_timeline(ops, target, TYPICAL_HOST).timeline
    path = written(timeline, tmp_path)
    trace = diagnose_trace(path, ceilings=target.ceilings)
    assert_same(predicted, trace, 1e-3)
    assert trace.leaves["overhead.synchronisation"] > 0
    assert trace.leaves["overhead.dispatch"] > 0
    for name in ("kernels", "flops", "bytes", "copies"):
        assert trace.counters[name] == predicted.counters[name], name
