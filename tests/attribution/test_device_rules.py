from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gobrrr.attribution.device.attribute import DeviceAttribution, attribute_device
from gobrrr.attribution.device.groups import group_kernels
from gobrrr.attribution.leaves import COMPUTE_MATRIX, MEMORY
from gobrrr.devices.ceilings import Ceiling, Ceilings, MemoryLevel
from gobrrr.recordings.traces import read_trace
from gobrrr.timeline.data import Timeline
from gobrrr.timeline.ops import OpCall
from gobrrr.work.estimate import Work
from trace_writing import WrittenTrace

# A device whose arithmetic is easy: 1 FLOP per ns on the matrix unit, 0.1 on the vector unit, one
# byte per ns, and 1 us for a kernel that does nothing.
ROWS = {
    name: Ceiling(name, value, unit, "given", "test")
    for name, value, unit in (
        ("matrix.float32", 1e9, "FLOP/s"),
        ("vector.float32", 1e8, "FLOP/s"),
        ("matrix.tf32", 4e9, "FLOP/s"),
        ("kernel.fixed", 1e-6, "s"),
    )
}
DEVICE = Ceilings("test device", ROWS, (MemoryLevel("dram", None, ((0.0, 1e9),)),))


def work(matrix: float = 0.0, vector: float = 0.0, moved: int = 0) -> Work:
    return Work(matrix, vector, moved, 0, moved, "float32", "other")


WORKS = {
    "aten::mm": work(matrix=30_000, moved=10_000),  # 30 us of compute, 10 us of memory
    "aten::add": work(vector=500, moved=20_000),  # 5 us of compute, 20 us of memory
    "aten::view": work(),
    "aten::copy_": work(moved=20_000),
    "aten::zero_": work(moved=10_000),
}


def attributed(trace: WrittenTrace, tmp_path: Path) -> tuple[Timeline, DeviceAttribution]:
    timeline = read_trace(trace.write(tmp_path))
    return timeline, attribute_device(timeline, DEVICE, lambda call: WORKS.get(call.name))


def leaves_us(found: DeviceAttribution) -> dict[str, float]:
    return {
        name: round(ns / 1000, 6) for name, ns in found.attribution.leaves_ns.items() if ns != 0
    }


def one_kernel(name: str, starts: float, duration: float, op: str | None = None) -> WrittenTrace:
    """A step from 0 on whose only host event is the launch (and its operator)."""
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 1000)
    if op is not None:
        trace.op(op, 0, 8)
    trace.launch(name, 1, starts, duration, correlation=1)
    return trace


def test_a_compute_bound_kernel_splits_into_fixed_roof_and_below(tmp_path: Path) -> None:
    _, found = attributed(one_kernel("gemm", 3, 50, "aten::mm"), tmp_path)
    # fixed = min(1, 50) = 1; roof = max(30, 10) = 30; below = 50 - 1 - 30 = 19
    assert leaves_us(found) == {
        "overhead.kernel_fixed_cost": 1,
        "compute.matrix.roof": 30,
        "compute.matrix.below": 19,
        "overhead.dispatch": 1,  # [0, 1): in the operator, before the call
        "overhead.launch": 2,  # [1, 3): in the call
    }
    assert found.attribution.above_ceiling == ()


def test_a_memory_bound_kernel(tmp_path: Path) -> None:
    _, found = attributed(one_kernel("add", 3, 25, "aten::add"), tmp_path)
    # fixed 1; roof = max(5, 20) = 20; below = 25 - 1 - 20 = 4
    leaves = leaves_us(found)
    assert leaves["memory.device.roof"] == 20
    assert leaves["memory.device.below"] == 4


def test_a_kernel_faster_than_its_roof_is_listed_and_still_sums(tmp_path: Path) -> None:
    _, found = attributed(one_kernel("gemm", 3, 20, "aten::mm"), tmp_path)
    # fixed 1; roof = min(30, 20 - 1) = 19; below 0
    leaves = leaves_us(found)
    assert leaves["compute.matrix.roof"] == 19
    assert "compute.matrix.below" not in leaves
    assert found.attribution.above_ceiling == (0,)


def test_a_kernel_shorter_than_the_fixed_cost_is_all_fixed(tmp_path: Path) -> None:
    _, found = attributed(one_kernel("gemm", 3, 0.4, "aten::mm"), tmp_path)
    assert leaves_us(found)["overhead.kernel_fixed_cost"] == 0.4


@pytest.mark.parametrize(
    ("name", "leaf"),
    [
        ("ampere_sgemm_128x128_tn", "compute.unmodelled"),
        ("volta_scudnn_winograd_128x128_ldg1_nt_v1", "compute.unmodelled"),
        ("void pytorch_flash::flash_fwd_kernel<x>(y)", "compute.unmodelled"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV", "compute.unmodelled"),
        ("void at::native::vectorized_elementwise_kernel<4>()", "memory.unmodelled"),
        ("void at::native::reduce_kernel<512, 1, sum_functor>()", "memory.unmodelled"),
        ("void fbgemm_gpu::permute_2D_data_kernel<false>(int)", "memory.unmodelled"),
        ("splitKreduce_kernel<float, cublasSplitKParams>", "memory.unmodelled"),
        ("triton_poi_fused_mm_0", "memory.unmodelled"),
        ("my_secret_kernel", "unmodelled"),
    ],
)
def test_without_a_formula_the_name_decides(tmp_path: Path, name: str, leaf: str) -> None:
    _, found = attributed(one_kernel(name, 3, 10), tmp_path)
    assert leaves_us(found)[leaf] == 9  # 10 less the fixed 1
    assert found.attribution.works == (None,)


def test_without_ceilings_nothing_has_a_roof(tmp_path: Path) -> None:
    timeline = read_trace(one_kernel("gemm", 3, 50, "aten::mm").write(tmp_path))
    found = attribute_device(timeline, None, lambda call: WORKS.get(call.name))
    assert leaves_us(found)["compute.unmodelled"] == 50
    assert np.isnan(found.attribution.kernels.full_roof_ns).all()


def test_precedence_of_what_runs_at_once(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 1000)
    trace.op("aten::mm", 0, 0.2)
    trace.launch("gemm", 0, 40, 31, correlation=1, call_time=0.1)
    trace.op("aten::add", 1, 0.2)
    trace.launch("add", 1, 30, 21, correlation=2, call_time=0.1, stream=8)
    trace.launch("mystery", 2, 20, 40, correlation=3, call_time=0.1, stream=9)
    trace.launch("ncclDevKernel_AllReduce", 3, 10, 80, correlation=4, call_time=0.1, stream=10)
    trace.call("cudaMemcpyAsync", 4, 0.1, 5)
    trace.kernel("Memcpy HtoD (Pinned -> Device)", 0, 100, 5, stream=11, cat="gpu_memcpy")
    timeline, found = attributed(trace, tmp_path)
    leaves = leaves_us(found)
    # gemm owns [40, 71): all 31 = fixed 1 + roof 30
    assert leaves["compute.matrix.roof"] == 30
    # add owns [30, 40): 10 of 21 = (fixed 1 + roof 20 + below 0) x 10 / 21
    assert leaves["memory.device.roof"] == round(20 * 10 / 21, 6)
    # mystery owns [20, 30): 10 of 40 = (fixed 1 + 39) x 10 / 40
    assert leaves["unmodelled"] == 9.75
    assert leaves["overhead.kernel_fixed_cost"] == round(1 + 10 / 21 + 10 / 40, 6)
    # the collective owns [10, 20) and [71, 90); the copy [0, 10) and [90, 100)
    assert leaves["memory.network"] == 29
    assert leaves["memory.copies"] == 20
    assert found.device_time.exposed_collectives_ns == 10_000 + 19_000
    assert found.device_time.exposed_copies_ns == 10_000 + 10_000
    by_name = dict(zip([timeline.names[n] for n in timeline.kernels.name],
                       found.attribution.kernels.owned_ns.tolist()))  # fmt: skip
    assert by_name["add"] == 10_000


def test_a_copy_within_the_device_is_memory_traffic_of_its_op(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 1000)
    for at, op, name, cat, took in (
        (0, "aten::copy_", "Memcpy DtoD (Device -> Device)", "gpu_memcpy", 31),
        (50, "aten::copy_", "Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", 40),
        (100, "aten::zero_", "Memset (Device)", "gpu_memset", 12),
        # What prepares a product's kernel is not the product.
        (150, "aten::mm", "Memset (Device)", "gpu_memset", 3),
    ):
        trace.op(op, at, 9)
        trace.call("cudaMemcpyAsync", at + 1, 5, at + 1)
        trace.kernel(name, at + 4, took, at + 1, cat=cat)
    _, found = attributed(trace, tmp_path)
    leaves = leaves_us(found)
    assert leaves["memory.device.roof"] == 20 + 10
    assert leaves["memory.device.below"] == (31 - 1 - 20) + (12 - 1 - 10)
    assert leaves["memory.copies"] == 40 + 3
    # The figures of the streams keep all copies together, as other tools count them.
    assert found.device_time.exposed_copies_ns == 86_000


def two_steps() -> WrittenTrace:
    """Two steps with one product each, of 41 and 51 us."""
    trace = WrittenTrace()
    for step, duration in enumerate((41, 51)):
        base = 100 * step
        trace.note(f"ProfilerStep#{step}", base, 90)
        trace.op("aten::mm", base, 8)
        trace.launch("gemm", base + 1, base + 3, duration, correlation=step)
    return trace


def test_leaves_are_means_over_windows_and_each_is_kept(tmp_path: Path) -> None:
    _, found = attributed(two_steps(), tmp_path)
    below = [window["compute.matrix.below"] for window in found.attribution.windows]
    assert below == [10_000, 20_000]  # 41 - 1 - 30 and 51 - 1 - 30
    assert leaves_us(found)["compute.matrix.below"] == 15
    # windows [0, 100) and [100, 154): mean 77
    assert found.attribution.step_ns == 77_000
    # mean per step: each of two kernels counts half
    assert found.attribution.kernels.owned_ns.tolist() == [20_500, 25_500]


def test_windows_that_count_more_than_others_are_weighted_in_all_that_is_a_mean(
    tmp_path: Path,
) -> None:
    timeline = read_trace(two_steps().write(tmp_path))

    def counted(*counts: float) -> DeviceAttribution:
        return attribute_device(
            timeline, DEVICE, lambda call: WORKS.get(call.name),
            window_counts=np.array(counts) if counts else None,
        )  # fmt: skip

    found = counted(1.5, 0.5)
    # The windows of 100 and 54 us: (150 + 27) / 2; below the roof 10 and 20: (15 + 10) / 2.
    assert found.attribution.step_ns == 88_500
    assert leaves_us(found)["compute.matrix.below"] == 12.5
    kernels = found.attribution.kernels
    # 41 * 1.5 / 2 and 51 * 0.5 / 2, and of the roof of 30 likewise.
    assert kernels.owned_ns.tolist() == pytest.approx([30_750, 12_750])
    assert kernels.full_roof_ns.tolist() == pytest.approx([22_500, 7_500])
    # Of one call in each of two windows: 1.5 / 2 + 0.5 / 2.
    assert float(group_kernels(timeline, found).count.sum()) == pytest.approx(1.0)
    idle_ns = sum(gap.duration_ns for gap in found.attribution.idle)
    assert idle_ns == pytest.approx(88_500 - 30_750 - 12_750)
    assert float(found.idle_before_ns.sum()) <= idle_ns
    alike, plain = counted(1.0, 1.0).attribution, counted().attribution
    assert alike.leaves_ns == pytest.approx(dict(plain.leaves_ns))
    assert alike.kernels.owned_ns.tolist() == plain.kernels.owned_ns.tolist()


def test_a_kernel_that_runs_into_the_next_window_is_shared_by_time(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 40)
    trace.note("ProfilerStep#2", 50, 40)
    trace.op("aten::mm", 0, 8)
    trace.launch("gemm", 1, 20, 61, correlation=1)
    _, found = attributed(trace, tmp_path)
    # [20, 50) in the first, [50, 81) in the second; roof 30 of 61
    roofs = [window["compute.matrix.roof"] for window in found.attribution.windows]
    assert roofs == pytest.approx([30_000 * 30 / 61, 30_000 * 31 / 61])


def test_kernels_of_one_operator_divide_its_work_by_time(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.op("aten::mm", 0, 30)
    trace.launch("gemm", 1, 40, 60, correlation=1)
    trace.launch("splitKreduce_kernel", 10, 100, 20, correlation=2)
    _, found = attributed(trace, tmp_path)
    # 30000 FLOPs over 60 + 20: 22500 and 7500, both compute-bound like the operator
    assert [w.matrix_flops for w in found.work.works if w] == [22_500, 7500]
    assert found.work.roof_ns.tolist() == [22_500, 7500]
    assert set(found.attribution.kernels.regime.tolist()) == {COMPUTE_MATRIX}


def test_a_copy_inside_an_operator_takes_no_part_of_its_work(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.op("aten::mm", 0, 30)
    trace.call("cudaMemsetAsync", 1, 2, 1)
    trace.kernel("Memset (Device)", 40, 10, 1, cat="gpu_memset")
    trace.launch("gemm", 5, 60, 50, correlation=2)
    _, found = attributed(trace, tmp_path)
    assert found.work.works[0] is None
    assert found.work.works[1] == WORKS["aten::mm"]


def test_an_operator_without_formula_leaves_the_work_to_the_one_around_it(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.op("aten::mm", 0, 30)
    trace.op("aten::_inner_mm", 2, 20)
    trace.op("aten::view", 3, 15)  # a formula, but nothing to do
    trace.launch("gemm", 5, 60, 50, correlation=1)
    timeline, found = attributed(trace, tmp_path)
    assert found.work.works == (WORKS["aten::mm"],)
    assert timeline.names[timeline.host.name[found.work.op[0]]] == "aten::mm"


def test_two_calls_of_one_operator_have_their_own_work(tmp_path: Path) -> None:
    trace = WrittenTrace()
    for i in range(2):
        trace.op("aten::add", 100 * i, 30)
        trace.launch("add", 100 * i + 1, 100 * i + 40, 30, correlation=i)
    _, found = attributed(trace, tmp_path)
    assert found.work.roof_ns.tolist() == [20_000, 20_000]
    assert set(found.attribution.kernels.regime.tolist()) == {MEMORY}


def test_a_float32_kernel_that_multiplies_in_tf32_is_held_against_tf32(tmp_path: Path) -> None:
    name = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x64_32x6_nt_align1>(x)"
    _, found = attributed(one_kernel(name, 3, 50, "aten::mm"), tmp_path)
    # 30000 FLOPs at 4 per ns = 7.5 us; 10000 bytes at 1 per ns = 10 us
    assert found.work.roof_ns.tolist() == [10_000]
    assert found.work.works[0] is not None
    assert found.work.works[0].compute_dtype == "tf32"


def test_copies_around_a_kernel_in_tf32_are_held_against_tf32_too(tmp_path: Path) -> None:
    # cuDNN's copies into the layout of its kernel hold a share of the operator's FLOPs.
    trace = WrittenTrace()
    trace.op("aten::mm", 0, 10)
    trace.launch("nchwToNhwcKernel<float, float, float>", 1, 20, 10, correlation=1)
    trace.launch("sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32", 2, 30, 30, correlation=2)
    _, found = attributed(trace, tmp_path)
    assert [work and work.compute_dtype for work in found.work.works] == ["tf32", "tf32"]
    # 30000 FLOPs at 4 per ns are less than 10000 bytes at 1 per ns.
    assert found.work.roof_ns.tolist() == pytest.approx([2_500, 7_500])


def test_a_kernel_that_inductor_generated_is_modelled_from_its_arguments(tmp_path: Path) -> None:
    trace = WrittenTrace()
    name = "triton_poi_fused_add_0"
    tensors = {"Input Dims": [[1000], [1000], []], "Input type": ["float", "float", "Scalar"]}
    trace.op(name, 0, 10, **tensors)
    trace.launch(name, 1, 20, 50, correlation=1)
    _, found = attributed(trace, tmp_path)
    # 2 x 4000 bytes at 1 byte per ns = 8 us; 1000 additions at 0.1 per ns = 10 us
    assert found.work.roof_ns.tolist() == [10_000]


def test_a_list_of_tensors_gets_its_dtype_from_the_kernels_name(tmp_path: Path) -> None:
    trace = WrittenTrace()
    lists = {"Input Dims": [[[100], [50]], []], "Input type": ["TensorList", "Scalar"]}
    template = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<{}, unsigned int, 1>(x)"
    for i, element in enumerate(("float", "at::native::(anonymous namespace)::OpaqueType<2u>")):
        trace.op("aten::cat", 100 * i, 10, **lists, **{"Concrete Inputs": ["", str(i)]})
        trace.launch(template.format(element), 100 * i + 1, 100 * i + 20, 10, correlation=i)
    timeline = read_trace(trace.write(tmp_path))

    def bytes_of(call: OpCall) -> Work | None:
        sizes = [tensor.unique_bytes for tensor in call.tensors]
        return None if None in sizes else work(moved=sum(size for size in sizes if size))

    found = attribute_device(timeline, DEVICE, bytes_of)
    # 150 elements of 4 bytes, then of 2
    assert found.work.roof_ns.tolist() == [600, 300]


def test_kernels_launched_before_the_recording_take_the_work_of_their_twins(
    tmp_path: Path,
) -> None:
    trace = WrittenTrace()
    names = ["gemm", "add", "gemm", "norm", "head"]
    for i, name in enumerate(names[1:]):  # the end of the step before, its launches not recorded
        trace.kernel(name, 10 * i, 10, 900 + i)
    trace.note("ProfilerStep#1", 50, 100)
    for i, name in enumerate(names):
        if name in ("gemm", "add"):
            trace.op("aten::mm" if name == "gemm" else "aten::add", 50 + 20 * i, 8)
        trace.launch(name, 51 + 20 * i, 100 + 20 * i, 10, correlation=i)
    timeline, found = attributed(trace, tmp_path)
    assert timeline.kernels.twin.tolist() == [5, 6, 7, 8] + [-1] * 5
    assert found.work.works[:4] == (WORKS["aten::add"], WORKS["aten::mm"], None, None)
    # They stay unlinked: add and gemm, norm and head of 10 us each.
    assert found.unlinked_ns == 40_000 + 20_000


def test_a_run_of_kernels_that_does_not_come_again_has_no_twins(tmp_path: Path) -> None:
    trace = WrittenTrace()
    for i, name in enumerate(["a", "b", "c", "d"]):
        trace.kernel(name, 10 * i, 10, 900 + i)
    for i, name in enumerate(["a", "b", "x", "d", "a", "b", "c"]):
        trace.launch(name, 50 + 20 * i, 60 + 20 * i, 10, correlation=i)
    timeline = read_trace(trace.write(tmp_path))
    assert (timeline.kernels.twin == -1).all()


def test_a_kernel_without_operator_is_reported_as_unlinked(tmp_path: Path) -> None:
    trace = one_kernel("gemm", 3, 50, "aten::mm")
    trace.kernel("stray", 60, 7)
    _, found = attributed(trace, tmp_path)
    assert found.unlinked_ns == 7000
    assert found.attribution.leaves_ns["unmodelled"] == 6000  # 7 less the fixed 1


def test_a_timeline_without_device_work_is_refused(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.op("aten::mm", 0, 10)
    with pytest.raises(ValueError, match="without device work"):
        attributed(trace, tmp_path)
