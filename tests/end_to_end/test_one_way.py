"""A run, a trace of that run, and its prediction replayed: the same leaves by the same rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from gobrrr.attribution.attributed import recorded_step_times  # noqa: E402
from gobrrr.attribution.cpu.attribute import CpuAttribution, attribute_cpu, works_on  # noqa: E402
from gobrrr.attribution.cpu.attributed import attributed_lane, attributed_trace_lane  # noqa: E402
from gobrrr.attribution.cpu.causes import causes_of_lane  # noqa: E402
from gobrrr.attribution.cpu.lane_of_trace import lane_of_trace  # noqa: E402
from gobrrr.attribution.recorded_work import works_of  # noqa: E402
from gobrrr.devices.ceilings import Ceiling, Ceilings, MemoryLevel  # noqa: E402
from gobrrr.diagnosis.assemble import assemble  # noqa: E402
from gobrrr.diagnosis.schema import Diagnosis  # noqa: E402
from gobrrr.live.profiles.cpu_timeline import CpuCapture, build_cpu_capture  # noqa: E402
from gobrrr.live.profiles.profile import STEP_MARK, split_at_marks  # noqa: E402
from gobrrr.observe.op_recorder import OpRecorder  # noqa: E402
from gobrrr.pipeline.trace import diagnose_trace  # noqa: E402
from gobrrr.prediction.capture_target import capture_target  # noqa: E402
from gobrrr.prediction.kernels.kernel_model import Flags  # noqa: E402
from gobrrr.prediction.kernels.target import (  # noqa: E402
    TargetDevice,
    target_device,
    target_of_ceilings,
)
from gobrrr.prediction.step.costs import CostedOp, OpCost, cost_graph  # noqa: E402
from gobrrr.prediction.step.host_lane import TYPICAL_HOST, HostCosts  # noqa: E402
from gobrrr.prediction.step.step import predicted_step  # noqa: E402
from gobrrr.prediction.step.timeline import predicted_timeline  # noqa: E402
from gobrrr.recordings.traces import read_trace  # noqa: E402
from gobrrr.symbolic.op_graph import CaptureOptions, capture_op_graph  # noqa: E402
from gobrrr.timeline.data import Device, HostKind, KernelKind, Phase, Timeline  # noqa: E402
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


def plain_training() -> tuple[torch.nn.Module, Callable[[], object]]:
    """A network of a few large ops, each parameter updated by itself."""
    net = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.LayerNorm(512), torch.nn.Linear(512, 8)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, foreach=False)
    data = torch.randn(512, 256)

    def step() -> None:
        optimizer.zero_grad()
        net(data).square().mean().backward()
        optimizer.step()

    return net, step


def loading_training() -> tuple[torch.nn.Module, Callable[[], object]]:
    """Batches from a loader, Adam, a loss that is read."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3), torch.nn.BatchNorm2d(32), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(32 * 22 * 22, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(net.parameters())
    # Whole batches: a trace does not record the shapes of the list that is stacked to one, nor
    # therefore its work.
    held = [(torch.randn(32, 3, 24, 24), torch.randint(10, (32,))) for _ in range(12)]
    batches = iter(torch.utils.data.DataLoader(held, batch_size=None))

    def step() -> float:
        x, y = next(batches)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return net, step


PROGRAMS = {"plain": plain_training, "loading": loading_training}


@pytest.fixture(scope="module", params=PROGRAMS)
def recorded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[CpuCapture, Timeline]:
    """Some training steps profiled once: as a run sees them, and as their trace does."""
    torch.manual_seed(0)
    net, step = PROGRAMS[request.param]()
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


SIDES = ("memory.device.roof", "memory.device.below")


def assert_same(
    one: Diagnosis, other: Diagnosis, tolerance: float, *, sides: float | None = None
) -> None:
    """Equal leaves; ``sides`` is the tolerance of traffic at and below its ceiling, if another."""
    step_s = sum(one.leaves.values())
    assert sum(other.leaves.values()) == pytest.approx(step_s, rel=tolerance)
    for leaf, time_s in one.leaves.items():
        of_leaf = sides if sides is not None and leaf in SIDES else tolerance
        assert other.leaves[leaf] == pytest.approx(time_s, abs=of_leaf * step_s), leaf
    traffic_s, same_s = (sum(found.leaves[leaf] for leaf in SIDES) for found in (one, other))
    assert same_s == pytest.approx(traffic_s, abs=tolerance * step_s)
    assert (one.regime, one.step.kind) == (other.regime, other.step.kind)
    assert one.mfu == pytest.approx(other.mfu, rel=2 * tolerance)
    floor = 2 * (sides or tolerance)
    assert one.speed_of_light_s == pytest.approx(other.speed_of_light_s, rel=floor)


def test_a_run_and_a_trace_of_it_have_the_same_leaves(
    recorded: tuple[CpuCapture, Timeline],
) -> None:
    capture, timeline = recorded
    run, _ = diagnosis_of_run(capture)
    trace = diagnosis_of_trace(timeline)
    assert_same(run, trace, TOLERANCE)
    # The program with a loader waits for it in both, and the other in neither.
    waits = run.leaves["overhead.data_loading"] > 0
    assert waits == (trace.leaves["overhead.data_loading"] > 0)
    assert waits == any("DataLoader" in name for name in timeline.names)
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
        CostedOp(op, OpCost(op.call, work, None, float(time_s), 0.0, int(works_on(work)), 1))
        for op, work, time_s in zip(capture.recorded, works, kernel_s)
    ]  # fmt: skip
    host = HostCosts(each_s, 0.0, each_s, 0.0, 0.0, 0.0, 0.0, 0.0, "this test")
    step, of_host = predicted_step(ops, target, host, band=None)
    assert of_host is None
    predicted = assemble(step, source={"kind": "prediction"}, environment={})
    # What no kernel owns is dispatch here: a prediction knows neither Python nor a loader.
    outside = {name: 0.0 for name in run.leaves if name.startswith("overhead.")}
    whole = sum(run.leaves[name] for name in outside)
    run.leaves |= {**outside, "overhead.dispatch": whole}
    assert_same(run, predicted, 1e-4)


def reading() -> Callable[[], object]:
    """Kernels long and short, and a result that is read."""
    with torch.device("meta"):
        net = torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.GELU())
        x, y, z = (torch.empty(shape) for shape in ((4096, 2048), (64, 64), (64, 64)))

    def step() -> object:
        small = z
        for _ in range(12):
            small = small + y
        return net(x).sum().item()

    return step


def updating() -> Callable[[], object]:
    """Forward, backward and an optimizer that changes each parameter in turn."""
    with torch.device("meta"):
        net = torch.nn.Sequential(
            torch.nn.Linear(2048, 2048), torch.nn.GELU(), torch.nn.LayerNorm(2048)
        )
        x = torch.empty(4096, 2048)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=False)

    def step() -> object:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def costed_for_gpu(make: Callable[[], object]) -> tuple[list[CostedOp], TargetDevice]:
    """A step's ops with their costs on an H100."""
    target = target_device("H100-SXM")
    graph = capture_op_graph(make, capture_target(target), CaptureOptions())
    flags = Flags(tf32_matmul=False, tf32_convolution=False)
    return list(cost_graph(graph, target, flags=flags).ops), target


def written(timeline: Timeline, folder: Path, steps: int) -> Path:
    """A predicted timeline as the trace that the profiler would have written of so many such
    steps, in microseconds: the host spans before the window are those of the step before."""
    trace = WrittenTrace(
        deviceProperties=[{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}]
    )
    host, kernels, names = timeline.host, timeline.kernels, timeline.names
    shift = int(host.start_ns.min())

    def us(ns: int) -> float:
        return (ns - shift) / 1000

    begin, end = timeline.steps[0].tolist()
    for i, row in product(range(steps), range(len(host))):
        # The first half is the step before.
        if i and row < len(host) // 2:
            continue
        start = us(int(host.start_ns[row]) + i * (end - begin))
        length = int(host.end_ns[row] - host.start_ns[row])
        name, number = names[host.name[row]], row + i * len(host)
        if host.kind[row] == HostKind.OP:
            trace.op(name, start, length / 1000, **arguments(timeline.calls[host.call[row]]))
        elif host.kind[row] == HostKind.SYNCHRONISE:
            trace.call("cudaStreamSynchronize", start, length / 1000, 10**6 + number)
        else:
            # Inside its op: at its very end it would belong to the next as well.
            trace.call("cudaLaunchKernel", start - 0.002, 0.001, number)
    for i, k in product(range(steps), range(len(kernels))):
        start = us(int(kernels.start_ns[k]) + i * (end - begin))
        length = int(kernels.end_ns[k] - kernels.start_ns[k]) / 1000
        kind = "gpu_memcpy" if kernels.kind[k] == KernelKind.COPY else "kernel"
        name = "Memcpy DtoH" if kind == "gpu_memcpy" else f"kernel_of_{names[kernels.name[k]]}"
        trace.kernel(name, start, length, int(kernels.launch[k]) + i * len(host), cat=kind)
    # The backward pass is what the autograd engine ran.
    backward = np.flatnonzero(host.phase == Phase.BACKWARD)
    for i, half in product(range(steps), (0, 1)):
        rows = backward[(backward >= len(host) // 2) == half]
        if len(rows) and (half or not i):
            first, last = int(host.start_ns[rows].min()), int(host.end_ns[rows].max())
            name = "autograd::engine::evaluate_function: AddmmBackward0"
            trace.op(name, us(first + i * (end - begin)), (last - first) / 1000)
    # The window is the device's, which begins while the host is inside an op: on its own thread
    # the mark would hide that op.
    for i in range(steps):
        at = us(begin + i * (end - begin))
        trace.note(f"ProfilerStep#{i}", at, (end - begin) / 1000, tid=8)
    return trace.write(folder)


def arguments(call: OpCall) -> dict[str, object]:
    """What ``record_shapes`` would have written of a call's tensors."""
    shapes, types, strides = [], [], []
    for arg in call.args:
        known = isinstance(arg, TensorSpec)
        shapes.append(list(arg.shape) if known else [])
        strides.append(list(arg.strides or ()) if known else [])
        types.append("float" if known else "Scalar" if arg is not None else "")
    plain = [list(a) if isinstance(a, tuple) else a for a in call.args]
    values = ["" if isinstance(a, TensorSpec) or a is None else str(a) for a in plain]
    return {
        "Input Dims": shapes, "Input type": types, "Input Strides": strides,
        "Concrete Inputs": values,
    }  # fmt: skip


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("make", [reading, updating])
def test_a_prediction_written_as_a_trace_is_that_prediction(
    make: Callable[[], Callable[[], object]], steps: int, tmp_path: Path
) -> None:
    ops, target = costed_for_gpu(make)
    # What a recording knows of fixed costs: the device's, not each kernel's.
    ops = [
        CostedOp(op.op, replace(op.cost, fixed_s=op.kernels * target.kernel_fixed_s)) for op in ops
    ]
    step, _ = predicted_step(ops, target, TYPICAL_HOST, band=None)
    predicted = assemble(step, source={"kind": "prediction"}, environment={})
    timeline = predicted_timeline(ops, target, TYPICAL_HOST).timeline
    path = written(timeline, tmp_path, steps)
    trace = diagnose_trace(path, ceilings=target.ceilings)
    # A trace does not say which tensors share memory, so not what is still in the cache.
    assert_same(predicted, trace, 1e-3, sides=1e-2)
    reads = make is reading
    assert (trace.leaves["overhead.synchronisation"] > 0) == reads
    assert (trace.leaves["overhead.dispatch"] > 0) == reads
    assert (trace.step.kind == "training step") != reads
    assert trace.step.profiled_steps == steps
    for name in ("kernels", "flops", "bytes", "copies"):
        assert trace.counters[name] == predicted.counters[name], name
