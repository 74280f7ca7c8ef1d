"""CPU attribution on hand-written steps: the arithmetic stands beside each expectation."""

from __future__ import annotations

import numpy as np
import pytest

from gobrrr.attribution.cpu.attribute import attribute_cpu, reconcile
from gobrrr.attribution.leaves import LEAVES
from gobrrr.devices.ceilings import Ceiling, Ceilings, MemoryLevel
from gobrrr.live.profiles.cpu_timeline import build_cpu_capture
from gobrrr.live.profiles.profile import ProfilerCost, RawEvents
from gobrrr.timeline.data import Device, Phase
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work

CPU = Device("test processor", "cpu")
FREE = ProfilerCost(0.0, 0.0)


def ceilings() -> Ceilings:
    """1 FLOP/ns on the matrix unit and the vector unit, 1 byte/ns of memory."""
    rows = {
        name: Ceiling(name, 1e9, "FLOP/s", "given", "test")
        for name in ("matrix.float32", "vector.float32")
    }
    return Ceilings("test processor", rows, (MemoryLevel("dram", None, ((0.0, 1e9),)),))


def op(name: str, size: int = 1) -> StepOp:
    return StepOp(
        OpCall(name, (TensorSpec((size,), "float32"),)), "net", "a.py:1 in f", Phase.FORWARD, 1
    )


def step(length: int, *events: tuple[str, int, int], gc: tuple[int, int] | None = None,
         annotations: tuple[str, ...] = ()) -> RawEvents:  # fmt: skip
    """Events as (name, start, end), parents before children."""
    names = tuple(dict.fromkeys(name for name, _, _ in events))
    return RawEvents(
        names=names,
        start_ns=np.array([start for _, start, _ in events], np.int64),
        end_ns=np.array([end for _, _, end in events], np.int64),
        name=np.array([names.index(name) for name, _, _ in events], np.int32),
        thread=np.zeros(len(events), np.int32),
        annotation=np.array([name in annotations for name, _, _ in events], bool),
        length_ns=length,
        gc_ns=(gc,) if gc else (),
    )


def matmul(flops: float) -> Work:
    return Work(flops, 0.0, 1, 0, 1, "float32", "contraction")


def stream(moved: int) -> Work:
    return Work(0.0, 0.0, moved, 0, moved, "float32", "elementwise")


VIEW = Work(0.0, 0.0, 0, 0, 0, "float32", "movement")


def leaves_of(steps, recorded, works, fixed, step_ns, faults=None, cost=FREE):  # type: ignore[no-untyped-def]
    capture = build_cpu_capture(steps, recorded, CPU)
    count = len(recorded)
    result = attribute_cpu(
        capture, works, ceilings(), step_ns, fixed_ns=np.array(fixed, float),
        fault_ns=np.array(faults or [0] * count, float), cost=cost,
    )  # fmt: skip
    leaves = dict(result.attribution.leaves_ns)
    assert set(leaves) == set(LEAVES)
    return {name: pytest.approx(value) for name, value in leaves.items() if value > 1e-9}


def test_an_op_is_dispatch_then_roof_then_below() -> None:
    # linear 10..110 holds mm 20..100. mm: 80 ns, fixed 10, roof 50 (50 FLOP at 1 FLOP/ns), so 20
    # below. linear's own 20 ns are dispatch, with mm's 10 that makes 30; 40 ns are outside.
    steps = [step(140, ("aten::linear", 10, 110), ("aten::mm", 20, 100))]
    assert leaves_of(steps, [op("aten::mm")], [matmul(50)], [10], 140) == {
        "compute.matrix.roof": 50,
        "compute.matrix.below": 20,
        "overhead.dispatch": 30,
        "overhead.python": 40,
    }


def test_the_roof_has_its_time_before_page_faults() -> None:
    # 100 ns: fixed 10, roof 50, faults min(60, 40) = 40, below 0.
    steps = [step(100, ("aten::mul", 0, 100))]
    assert leaves_of(steps, [op("aten::mul")], [stream(50)], [10], 100, faults=[60]) == {
        "overhead.dispatch": 10,
        "memory.page_faults": 40,
        "memory.device.roof": 50,
    }


def test_a_generated_kernel_has_the_work_that_its_source_told() -> None:
    # Twice 30 ns, each with 20 bytes at 1 byte/ns: roof 2 * 20, below 60 - 40. No fixed cost known.
    name = "graph_0_cpp_fused_mul_0"
    capture = build_cpu_capture([step(100, (name, 0, 30), (name, 40, 70))], [], CPU)
    result = attribute_cpu(capture, [], ceilings(), 100, generated={name: stream(20)})
    leaves = {name: value for name, value in result.attribution.leaves_ns.items() if value > 1e-9}
    assert leaves == pytest.approx(
        {"memory.device.roof": 40, "memory.device.below": 20, "overhead.python": 40}
    )


def test_an_op_that_the_recorded_step_did_not_run_is_unmodelled() -> None:
    # Recorded: a product and a view. The profiled step has a second of each. The second product
    # pays the fixed 10 of the first, and the work of its other 80 ns is not known, which is not
    # dispatch; a view is dispatch whichever it is.
    steps = [step(300, ("aten::mm", 0, 90), ("aten::view", 90, 100), ("aten::mm", 150, 240),
                  ("aten::view", 240, 250))]  # fmt: skip
    recorded = [op("aten::mm"), op("aten::view")]
    assert leaves_of(steps, recorded, [matmul(80), VIEW], [10, 0], 300) == {
        "compute.matrix.roof": 80,
        "compute.unmodelled": 80,
        "overhead.dispatch": 40,
        "overhead.python": 100,
    }


def test_an_op_that_is_like_all_recorded_ones_of_its_name_has_their_work() -> None:
    # Recorded: two products of 80 FLOP. The third of the profiled step, fixed 10 as theirs, is one.
    steps = [step(300, ("aten::mm", 0, 95), ("aten::mm", 100, 195), ("aten::mm", 200, 295))]
    recorded = [op("aten::mm"), op("aten::mm")]
    assert leaves_of(steps, recorded, [matmul(80), matmul(80)], [10, 10], 300) == {
        "compute.matrix.roof": 240,
        "compute.matrix.below": 15,
        "overhead.dispatch": 30,
        "overhead.python": 15,
    }


def test_a_view_is_dispatch() -> None:
    steps = [step(100, ("aten::view", 0, 30))]
    assert leaves_of(steps, [op("aten::view")], [VIEW], [np.nan], 100) == {
        "overhead.dispatch": 30,
        "overhead.python": 70,
    }


def test_an_op_without_a_formula_is_unmodelled_not_free() -> None:
    steps = [step(100, ("mine::op", 0, 60))]
    assert leaves_of(steps, [op("mine::op")], [None], [20], 100) == {
        "overhead.dispatch": 20,
        "unmodelled": 40,
        "overhead.python": 40,
    }


def test_collection_owns_before_loading_before_python() -> None:
    # The loader's range is 0..50 with a kernel 10..20 in it; a collection runs 30..60.
    # kernel 10; collection 30; loading 50 - 10 - 20 = 20; Python the rest of 100: 40.
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    steps = [step(100, (loader, 0, 50), ("aten::cat", 10, 20), gc=(30, 60), annotations=(loader,))]
    assert leaves_of(steps, [op("aten::cat")], [stream(10)], [0], 100) == {
        "memory.device.roof": 10,
        "overhead.garbage_collection": 30,
        "overhead.data_loading": 20,
        "overhead.python": 40,
    }


def test_the_profilers_cost_is_taken_from_the_owner_that_paid_it() -> None:
    # Each event costs 2 inside and 3 outside. relu (kernel, top level) 10..30: 20 - 2 = 18 ns of
    # kernel; its 3 outside were Python's: 80 - 3 = 77. The step was 100 - 5 = 95 unprofiled.
    steps = [step(100, ("aten::relu", 10, 30))]
    assert leaves_of(
        steps, [op("aten::relu")], [stream(18)], [0], 95, cost=ProfilerCost(2.0, 3.0)
    ) == {"memory.device.roof": 18, "overhead.python": 77}


def test_kernels_are_medians_over_steps() -> None:
    # 20, 30 and 90 ns: the median is 30; the Python around it is 70 in each.
    steps = [step(70 + d, ("aten::relu", 35, 35 + d)) for d in (20, 30, 90)]
    assert leaves_of(steps, [op("aten::relu")], [stream(30)], [0], 100) == {
        "memory.device.roof": 30,
        "overhead.python": 70,
    }


def test_what_the_cost_cannot_explain_is_drift_and_scales_everything() -> None:
    # Profiled 100 + 100, cost 20. At 190 unprofiled half the cost explains it; at 360 the cost
    # is taken at its least (half: 10) and all is scaled by 360 / 190.
    exact = reconcile(100, 100, 20, 190)
    assert (exact.cost_share, exact.scale) == (0.5, 1.0)
    drift = reconcile(100, 100, 20, 360)
    assert (drift.cost_share, drift.scale) == (0.5, pytest.approx(360 / 190))


def test_the_same_ops_in_other_steps_stay_apart() -> None:
    # Only one of two steps runs the branch: it counts by half (20 ns in half of the steps).
    steps = [
        step(100, ("aten::relu", 0, 40), ("aten::mul", 50, 70)),
        step(100, ("aten::relu", 0, 40)),
    ]
    leaves = leaves_of(
        steps, [op("aten::relu"), op("aten::mul")], [stream(40), stream(20)], [0, 0], 100
    )
    # Kernels 40 + 10; Python's median of 40 and 60 is 50.
    assert leaves == {"memory.device.roof": 50, "overhead.python": 50}


def test_giving_pages_back_is_allocation_and_never_more_than_the_time_between_ops() -> None:
    # 100 ns with a kernel of 60: 40 between ops, of which 15 are the release of pages.
    capture = build_cpu_capture([step(100, ("aten::mul", 0, 60))], [op("aten::mul")], CPU)
    for release, python in ((15, 25), (70, 0)):
        result = attribute_cpu(capture, [stream(60)], ceilings(), 100, release_ns=release)
        leaves = result.attribution.leaves_ns
        assert leaves["overhead.allocation"] == pytest.approx(40 - python)
        assert leaves["overhead.python"] == pytest.approx(python)


def test_page_faults_are_as_many_as_timed_steps_have() -> None:
    from gobrrr.attribution.cpu.run import faults_of_timed_steps

    recorded = np.array([30.0, 0.0, 10.0])
    # The allocator of a timed step gives back less: the same ops, a quarter of the faults.
    assert faults_of_timed_steps(recorded, 10.0).tolist() == [7.5, 0.0, 2.5]
    # Or more, as far as the ops that were seen to bring in memory may be all that do.
    assert faults_of_timed_steps(recorded, 60.0).tolist() == [45.0, 0.0, 15.0]
    assert faults_of_timed_steps(recorded, 400.0).tolist() == [90.0, 0.0, 30.0]
    assert faults_of_timed_steps(recorded, None).tolist() == recorded.tolist()


def test_an_op_that_no_profiled_step_ran_is_not_called() -> None:
    # Recorded: a product and a sum; the profiled steps run the product alone, whatever is told.
    steps = [step(100, ("aten::mm", 0, 80))]
    capture = build_cpu_capture(steps, [op("aten::mm"), op("aten::sum")], CPU)
    found = attribute_cpu(
        capture, [matmul(50), stream(7)], ceilings(), 100, calls=np.array([1.0, 1.0])
    )
    assert found.calls.tolist() == [1.0, 0.0]
    leaves = {name: value for name, value in found.attribution.leaves_ns.items() if value > 1e-9}
    assert leaves == pytest.approx(
        {"compute.matrix.roof": 50, "compute.matrix.below": 30, "overhead.python": 20}
    )
