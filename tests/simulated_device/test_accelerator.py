"""The simulated device does what it was told, and its traces are read as all traces are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from gobrrr.recordings.traces import read_trace  # noqa: E402
from gobrrr.timeline.data import HostKind, KernelKind, Phase, Timeline  # noqa: E402
from simulated_device import (  # noqa: E402
    AMD,
    NVIDIA,
    Accelerator,
    HostCosts,
    Hostility,
    Kernel,
    Op,
    Profiling,
    SimulatedBackend,
    Vendor,
)

pytestmark = pytest.mark.torch
US = 1000


def ten_us(op: Op) -> tuple[Kernel, ...]:
    return (Kernel(f"void {op.name.removeprefix('aten::')}_kernel<float>", 10 * US),)


def profiled(gpu: Accelerator, step: object, folder: Path, steps: int = 3) -> Timeline:
    assert callable(step)
    profiler = SimulatedBackend(gpu).profiler()
    profiler.start()
    for _ in range(steps):
        step()
        profiler.mark()
    profiler.stop(folder / "trace.json")
    return read_trace(folder / "trace.json")


@pytest.mark.parametrize("vendor", [NVIDIA, AMD])
def test_ops_kernels_and_calls_are_linked(vendor: Vendor, tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 4)
    x = torch.ones(2, 4)
    with Accelerator(vendor, table=ten_us) as gpu:
        timeline = profiled(gpu, lambda: model(x).relu().sum().backward(), tmp_path, steps=1)
    assert timeline.device.name == vendor.device and timeline.device.kind == vendor.kind
    kernels, host = timeline.kernels, timeline.host
    assert (kernels.op >= 0).all() and (kernels.launch >= 0).all()
    assert (kernels.end_ns - kernels.start_ns == 10 * US).all()
    ops = Counter(timeline.names[host.name[row]] for row in kernels.op)
    # Forward: addmm, relu, sum. Backward: ones_like; the sum's gradient is a view; one product
    # and one sum for weight and bias.
    assert ops["aten::addmm"] == 1 and ops["aten::mm"] == 1 and ops["aten::sum"] == 2
    assert ops["aten::threshold_backward"] == 1
    phase = {timeline.names[host.name[row]]: Phase(host.phase[row]) for row in kernels.op}
    assert phase["aten::addmm"] is Phase.FORWARD and phase["aten::mm"] is Phase.BACKWARD
    call = next(call for call in timeline.calls if call.name == "aten::addmm")
    assert [(t.shape, t.dtype) for t in call.tensors] == [
        ((4,), "float32"), ((2, 4), "float32"), ((4, 4), "float32"),
    ]  # fmt: skip


def test_the_host_runs_ahead_until_the_queue_is_full(tmp_path: Path) -> None:
    x = torch.ones(4)
    costs = HostCosts(python=0, dispatch=0, returning=0, launch=US, latency=0, queue=5)
    with Accelerator(costs=costs, table=ten_us) as gpu:
        begins = gpu.machine.now_ns
        for _ in range(5):
            torch.neg(x)
        assert gpu.machine.now_ns - begins == 5 * US
        torch.neg(x)
        # One place is free when the first kernel ends, 10 us after its launch returned.
        assert gpu.machine.now_ns - begins == (1 + 10 + 1) * US
        gpu.synchronise()
        assert gpu.machine.now_ns - begins == (1 + 6 * 10) * US


def test_item_waits_for_its_stream(tmp_path: Path) -> None:
    x = torch.ones(4)
    with Accelerator(table=ten_us) as gpu:

        def step() -> None:
            for _ in range(20):
                torch.neg(x)
            x.sum().item()

        timeline = profiled(gpu, step, tmp_path, steps=1)
    waits = timeline.host.kind == HostKind.SYNCHRONISE
    names = {timeline.names[name] for name in timeline.host.name[waits]}
    assert "cudaStreamSynchronize" in names
    copy = timeline.kernels.kind == KernelKind.COPY
    blocked = [
        row for row in waits.nonzero()[0]
        if timeline.names[timeline.host.name[row]] == "cudaStreamSynchronize"
    ]  # fmt: skip
    assert timeline.host.end_ns[blocked[0]] == timeline.kernels.end_ns[copy][0]


def test_a_collective_runs_beside_the_program_until_it_is_waited_for(tmp_path: Path) -> None:
    x = torch.ones(4)
    with Accelerator(table=ten_us) as gpu:

        def step() -> None:
            ends = gpu.all_reduce(torch.neg(x), 40 * US)
            torch.neg(x)
            gpu.wait_for(ends)
            torch.neg(x)

        timeline = profiled(gpu, step, tmp_path, steps=1)
    kernels = timeline.kernels
    reduces = kernels.kind == KernelKind.COLLECTIVE
    assert reduces.sum() == 1 and len(set(kernels.stream.tolist())) == 2
    end = kernels.end_ns[reduces][0]
    others = kernels.start_ns[~reduces]
    assert (others < end).sum() == 2 and others.max() == end


def test_a_graph_is_one_launch(tmp_path: Path) -> None:
    x = torch.ones(4)
    with Accelerator(table=ten_us) as gpu:
        graph = gpu.capture(lambda: [torch.neg(x) for _ in range(8)])
        timeline = profiled(gpu, graph.replay, tmp_path, steps=1)
    kernels = timeline.kernels
    assert len(kernels) == 8 and len(set(kernels.launch.tolist())) == 1
    assert (kernels.start_ns[1:] == kernels.end_ns[:-1]).all()


def test_tensors_of_the_host_and_of_the_device() -> None:
    ones = torch.ones(1000)
    with Accelerator(table=ten_us) as gpu:
        host = gpu.on_host(ones)
        halved = host / 2
        assert not gpu.machine.ran and not gpu.used
        device = gpu.to_device(halved, 5 * US, pinned=False)
        assert [ran.name for ran in gpu.machine.ran] == ["Memcpy HtoD (Pageable -> Device)"]
        with pytest.raises(RuntimeError, match="at least two devices"):
            device + host
        assert (device + 1).sum().item() == 1500


def test_memory_is_counted_and_limited() -> None:
    x = torch.ones(1000)
    with Accelerator() as gpu:
        kept = x + 1
        assert gpu.held_bytes() == 4000
        (x + kept).sum()
        assert gpu.peak_bytes == 8004 and gpu.held_bytes() == 4000
        gpu.limit_bytes = 6000
        with pytest.raises(torch.OutOfMemoryError):
            torch.neg(x)


def test_gaps_are_between_what_is_queued_and_between_nodes() -> None:
    x = torch.ones(4)
    with Accelerator(table=ten_us, hostile=Hostility(gap_ns=1300, node_gap_ns=700)) as gpu:
        graph = gpu.capture(lambda: [torch.neg(x) for _ in range(3)])
        torch.neg(x)
        graph.replay()
        gpu.synchronise()
        torch.neg(x)
    begins = [ran.start_ns for ran in gpu.machine.ran]
    ends = [ran.end_ns for ran in gpu.machine.ran]
    gaps = [begin - end for begin, end in zip(begins[1:], ends)]
    assert gaps[:3] == [1300, 700, 700] and gaps[3] > 10 * US


def test_records_are_lost_moved_and_emptied_as_told(tmp_path: Path) -> None:
    hostile = Hostility(
        lost_every=5, late_every=4, late_ns=50_000, empty_every=3, zeroed_first=1, offset_ns=1000
    )
    records = [hostile.record(number, 100_000, 7000) for number in range(5)]
    assert records == [(0.0, 7.0), (101.0, 7.0), (101.0, 0.0), (151.0, 7.0), None]


def test_what_a_profiler_costs_lies_where_it_was_told(tmp_path: Path) -> None:
    x = torch.ones(4)
    times = []
    for profiling in (Profiling(), Profiling(before=100, inside=20, after=3, call=4000)):
        gpu = Accelerator(table=ten_us, hostile=Hostility(profiling, stall_ns=90, stalled_call=1))
        with gpu:
            times.append(profiled(gpu, lambda: torch.neg(x), tmp_path, steps=1).host)
    names = [[h.kind == kind for kind in (HostKind.OP, HostKind.LAUNCH)] for h in times]
    lengths = [
        [(h.end_ns - h.start_ns)[rows].tolist() for rows in kinds] for h, kinds in zip(times, names)
    ]
    assert lengths == [[[7590], [3090]], [[7590 + 20 + 4000], [3090 + 4000]]]


def test_a_capture_is_seen_and_may_not_be_waited_in() -> None:
    x = torch.ones(4)
    seen = []
    with Accelerator(table=ten_us) as gpu:
        gpu.capture(lambda: seen.append(torch.cuda.is_current_stream_capturing()))
        seen.append(torch.cuda.is_current_stream_capturing())
        with pytest.raises(RuntimeError, match="when stream is capturing"):
            gpu.capture(lambda: torch.neg(x).sum().item())
        with pytest.raises(RuntimeError, match="when stream is capturing"):
            gpu.capture(SimulatedBackend(gpu).timer().mark)
    assert seen == [True, False]


def test_another_thread_takes_no_time_of_the_programs() -> None:
    x = torch.ones(4)
    with Accelerator(table=ten_us) as gpu:
        begins = gpu.machine.now_ns
        with gpu.beside():
            torch.neg(x)
        assert gpu.machine.now_ns == begins and not gpu.machine.did
        gpu.retry_allocation(50 * US)
    (ran,) = gpu.machine.ran
    assert ran.stream != NVIDIA.default_stream
    assert gpu.driver_calls.retries == gpu.memory_stats()["num_alloc_retries"] == 1
    assert sum(d.end_ns - d.start_ns for d in gpu.machine.did if "alloc" in d.leaf) == 50 * US
