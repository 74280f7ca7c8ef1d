"""Walks of single ops through memory, where alignment and sizes choose the kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gobrrr.prediction.kernels.flags import Flags, flags_of_kernels
from gobrrr.prediction.kernels.kernel_model import estimate_op
from gobrrr.prediction.kernels.target import target_device
from gobrrr.prediction.kernels.walks.walk import Machine, Walk
from gobrrr.prediction.kernels.walks.walks import walks_of
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work import work_of
from gobrrr.work.registry import failure_notices, forget_failures

CUDA = Machine(0.5, "cuda", 132, 43 * 2**20)


def _dense(shape: tuple[int, ...], dtype: str = "bfloat16", offset: int = 0) -> TensorSpec:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return TensorSpec(shape, dtype, tuple(reversed(strides)), None, "cuda", offset)


def _share_of_peak(call: OpCall, device: str = "H100-SXM") -> float:
    """Bytes of the op's least work over its predicted time, as a share of the memory's peak."""
    work, target = work_of(call), target_device(device)
    assert work is not None and work.bytes_moved is not None
    found = estimate_op(call, work, target, cold_bytes=work.bytes_moved)
    assert found is not None
    peak = target.ceilings.levels[-1].bandwidth_bytes_per_s(0.0)
    return work.bytes_moved / found.time_s / peak


def _cat(parts: tuple[TensorSpec, ...], dim: int, out: tuple[int, ...]) -> OpCall:
    return OpCall("aten::cat", (parts, dim), (_dense(out),), "default")


def _indexed(call: OpCall) -> float:
    work = work_of(call)
    assert work is not None
    (walk,) = walks_of(call, work, CUDA)
    return walk.indexed


def test_parts_that_are_whole_vectors_are_joined_16_bytes_at_a_time() -> None:
    x = _dense((4096, 4096))
    elements = 2 * 4096 * 4096
    # 1.5 addresses for each vector of 16 bytes, which holds 8 elements.
    assert _indexed(_cat((x, x), 0, (8192, 4096))) == pytest.approx(1.5 * elements / 8)
    assert _indexed(_cat((x, x), 1, (4096, 8192))) == pytest.approx(1.5 * elements / 8)
    # Rows of 4095 elements do not start on 16 bytes; nor does a view that begins at element 1; a
    # transposed part is no row of memory.
    odd = _dense((4096, 4095))
    assert _indexed(_cat((odd, odd), 1, (4096, 8190))) == pytest.approx(1.5 * 2 * 4096 * 4095)
    shifted = _dense((4096, 4096), offset=1)
    assert _indexed(_cat((x, shifted), 0, (8192, 4096))) == pytest.approx(1.5 * elements)
    crossed = TensorSpec((4096, 4096), "bfloat16", (1, 4096), None, "cuda", 0)
    assert _indexed(_cat((x, crossed), 0, (8192, 4096))) == pytest.approx(1.5 * elements)


def test_rows_of_a_table_are_copied_as_vectors_where_they_are_whole_ones() -> None:
    def lookup(width: int) -> OpCall:
        table, where = _dense((50_000, width)), _dense((65_536,), "int64")
        out = (_dense((65_536, width)),)
        return OpCall("aten::embedding", (table, where, -1, False, False), out, "default")

    assert _indexed(lookup(1024)) == pytest.approx(65_536 * 1024 / 8)
    assert _indexed(lookup(1023)) == pytest.approx(65_536 * 1023)


_LONG, _ROWS = _dense((16_384, 32_768)), _dense((65_536, 4096))


@pytest.mark.parametrize(
    ("call", "least"),
    [
        (_cat((_dense((16_384, 16_384)),) * 2, 0, (32_768, 16_384)), 0.75),
        (OpCall("aten::silu", (_LONG,), (_LONG,)), 0.8),
        (
            OpCall("aten::gelu", (_dense((16_384, 32_768)), "none"), (_dense((16_384, 32_768)),)),
            0.7,
        ),
        (OpCall("aten::_softmax", (_ROWS, 1, False), (_ROWS,)), 0.7),
        (
            OpCall(
                "aten::upsample_bilinear2d",
                (_dense((32, 64, 256, 256)), (512, 512), False, None, None),
                (_dense((32, 64, 512, 512)),),
            ),
            0.5,
        ),
    ],
    ids=["cat", "silu", "gelu", "softmax", "upsample"],
)
def test_long_streams_come_near_the_memorys_peak(call: OpCall, least: float) -> None:
    assert least < _share_of_peak(call) < 1


def test_gradient_of_a_lookup_touches_the_rows_that_were_looked_up() -> None:
    grad, where = _dense((8192, 4096)), _dense((8192,), "int64")
    out = (_dense((50_000, 4096)),)
    args = (grad, where, 50_000, -1, False)
    call = OpCall("aten::embedding_dense_backward", args, out, "default")
    work, target = work_of(call), target_device("H100-SXM")
    assert work is not None
    found = estimate_op(call, work, target, cold_bytes=work.bytes_moved)
    assert found is not None
    # 410 MB are zeroed, 67 MB read and as much added to: 0.16 ms at the memory's peak.
    assert 0.16e-3 < found.time_s < 0.3e-3
    # Zeros, a radix sort of 16 bits in two passes, sums; few indices are not sorted.
    assert found.kernels == 4
    small = (_dense((64, 4096)), _dense((64,), "int64"), *args[2:])
    few = OpCall(call.name, small, out, "default")
    work = work_of(few)
    assert work is not None
    assert len(walks_of(few, work, CUDA)) == 2


def test_unaligned_rows_of_a_softmax_are_read_again() -> None:
    def softmax(columns: int) -> OpCall:
        x = _dense((4096, columns), "float32")
        return OpCall("aten::_softmax", (x, 1, False), (x,), "default")

    for columns, reads in ((1024, 1.0), (4096, 1.0), (4097, 3.0), (65_536, 3.0)):
        call = softmax(columns)
        work = work_of(call)
        assert work is not None
        (walk,) = walks_of(call, work, CUDA)
        assert walk.reads == reads, columns


def test_training_batch_norm_waits_for_the_trips_of_one_block_a_channel() -> None:
    x, channels = _dense((64, 64, 512, 512), "float32"), _dense((64,), "float32")
    args = (x, channels, channels, channels, channels, True, 0.1, 1e-5)
    call = OpCall("aten::native_batch_norm", args, (x, channels, channels), "default")
    work, target = work_of(call), target_device("H100-SXM")
    assert work is not None
    found = estimate_op(call, work, target, cold_bytes=work.bytes_moved)
    assert found is not None
    # A channel of 67 MB is read twice and written: 201 MB in pieces of 16 KB, 0.7 us each.
    assert found.time_s == pytest.approx(201.3e6 / 16384 * 0.7e-6, rel=0.02)
    # Ten times as many channels of a tenth the size keep every multiprocessor busy: bandwidth.
    x, channels = _dense((64, 640, 162, 162), "float32"), _dense((640,), "float32")
    args = (x, channels, channels, channels, channels, True, 0.1, 1e-5)
    call = OpCall("aten::native_batch_norm", args, (x, channels, channels), "default")
    work = work_of(call)
    assert work is not None
    spread = estimate_op(call, work, target, cold_bytes=work.bytes_moved)
    assert spread is not None and spread.time_s < 0.7 * found.time_s


AMD = Machine(0.5, "hip", 304, 256 * 2**20)


def _batch_norm(
    x: TensorSpec, weight: TensorSpec | None, *, backward: bool = False, name: str = ""
) -> tuple[Walk, ...]:
    if backward:
        args = (x, x, weight, weight, weight, weight, weight, True, 1e-5, (True, True, True))
        call = OpCall(name or "aten::native_batch_norm_backward", args, (x,), "default")
    else:
        args = (x, weight, weight, weight, weight, True, 0.1, 1e-5)
        call = OpCall(name or "aten::native_batch_norm", args, (x,), "default")
    work = work_of(call)
    assert work is not None
    return walks_of(call, work, AMD)


def test_on_amd_a_training_batch_norm_is_miopens_where_pytorch_takes_it() -> None:
    shape, weight = (256, 64, 112, 112), _dense((64,), "float32")
    # A workgroup of 1024 threads for each channel of 3.2 million elements: eight at once for the
    # statistics, two for the result.
    trips = 256 * 112 * 112 // 1024 // 8 + 256 * 112 * 112 // 1024 // 2
    for dtype in ("float32", "float16", "bfloat16"):
        for backward in (False, True):
            (walk,) = _batch_norm(_dense(shape, dtype), weight, backward=backward)
            assert (walk.reads, walk.programs, walk.trips) == (2, 64, trips), dtype
    # PyTorch's own kernels: one element of 512 threads at once.
    own = 256 * 112 * 112 // 512
    for x, parameters in (
        (_dense(shape, "float64"), _dense((64,), "float64")),
        (_dense(shape, "bfloat16"), _dense((64,), "bfloat16")),
        (_dense(shape, "float16"), _dense((64,), "float16")),
        (_dense(shape, "float32"), None),
    ):
        statistics, _, _ = _batch_norm(x, parameters)
        assert statistics.trips == own
        (walk,) = _batch_norm(x, parameters, backward=True)
        assert walk.trips == 2 * own
    last = TensorSpec(shape, "float16", (64 * 112 * 112, 1, 64 * 112, 64), None, "cuda", 0)
    assert all(walk.trips == 0 for walk in _batch_norm(last, weight))
    # The trace of another vendor's run may leave the weight out.
    (walk,) = _batch_norm(_dense(shape, "float32"), None, name="aten::cudnn_batch_norm")
    assert walk.trips == trips


def test_miopen_keeps_small_planes_and_spreads_large_channels() -> None:
    weight = _dense((64,), "float32")
    # 49 elements in each of 256 images: 256 threads keep them.
    (walk,) = _batch_norm(_dense((256, 64, 7, 7), "float32"), weight)
    assert (walk.reads, walk.trips) == (1, 13)  # 256 * 49 / (256 * 4) = 12.25
    # 800 elements of an image in float32: several workgroups; in 16 bits one.
    assert len(_batch_norm(_dense((8, 64, 20, 40), "float32"), weight)) == 3
    assert len(_batch_norm(_dense((8, 64, 20, 40), "float16"), weight)) == 1
    long = _dense((4, 64, 4096, 2048), "float16")
    assert len(_batch_norm(long, weight, backward=True)) == 3


def test_a_mean_of_log_probabilities_is_one_block_and_waits_for_its_rows() -> None:
    times = []
    for rows in (256, 32_768):
        x, target_rows = _dense((rows, 4096), "float32"), _dense((rows,), "int64")
        scalar = TensorSpec((), "float32", (), None, "cuda", 0)
        args = (x, target_rows, None, 1, -100)
        call = OpCall("aten::nll_loss_forward", args, (scalar, scalar), "default")
        work = work_of(call)
        assert work is not None
        found = estimate_op(call, work, target_device("H100-SXM"), cold_bytes=work.bytes_moved)
        assert found is not None
        times.append(found.time_s)
    # 128 trips of 0.7 us for 32,768 rows, 256 at a time.
    assert times[0] < 10e-6
    assert times[1] == pytest.approx(128 * 0.7e-6, rel=0.1)


def _selected(count: int, width: int, vectors: bool = True) -> float:
    """Seconds of ``index_select`` of so many rows of bfloat16 out of as many, on an H100."""
    table, where = _dense((count, width)), _dense((count,), "int64")
    call = OpCall("aten::index_select", (table, 0, where), (_dense((count, width)),), "default")
    work, target = work_of(call), target_device("H100-SXM")
    assert work is not None
    found = estimate_op(
        call, work, target, cold_bytes=work.bytes_moved, flags=Flags(row_vectors=vectors)
    )
    assert found is not None
    return found.time_s


def test_selected_rows_take_what_was_published() -> None:
    # Issue 151612 of pytorch: ``index_select`` of 4096 rows of 5120 in 135.6 us, and ``gather``,
    # which it calls since PyTorch 2.8, in 36.3 us.
    assert _selected(4096, 5120) == pytest.approx(36.3e-6, rel=0.1)
    assert _selected(4096, 5120, vectors=False) == pytest.approx(135.6e-6, rel=0.1)


def test_short_rows_cost_whole_sectors_and_long_ones_their_bytes() -> None:
    def reads(width: int) -> float:
        table, where = _dense((50_000, width)), _dense((65_536,), "int64")
        call = OpCall("aten::index_select", (table, 0, where), (_dense((65_536, width)),))
        work = work_of(call)
        assert work is not None
        (walk,) = walks_of(call, work, CUDA)
        return walk.reads

    # One element of 2 bytes out of a sector of 32; 32 bytes that start with one; 34 bytes lie in
    # two sectors, or in three: (34 + 32 - 2) / 32 = 2 on average.
    assert reads(1) == pytest.approx(16)
    assert reads(16) == pytest.approx(1)
    assert reads(17) == pytest.approx(2 * 32 / 34)
    assert reads(4096) == pytest.approx(1)


def test_many_short_rows_wait_for_their_blocks() -> None:
    # 1 M rows of 64 bytes are 1 M blocks, each two trips to memory, 32 of them on one of 132
    # multiprocessors: 249 rounds of 1.4 us. As many bytes in rows of 8 kB are 15.
    assert _selected(2**20, 32) > 1.5 * _selected(2**13, 4096)


def test_places_in_another_dimension_are_no_rows() -> None:
    table, where = _dense((1024, 1024)), _dense((1024,), "int64")
    out = (_dense((1024, 1024)),)
    rows = OpCall("aten::index", (table, (where,)), out, "Tensor")
    columns = OpCall("aten::index", (table, (None, where)), out, "Tensor")
    assert _indexed(rows) == pytest.approx(1024 * 1024 / 8)
    assert _indexed(columns) == pytest.approx(1024 * 1024)


def test_names_of_recorded_kernels_tell_the_old_lookup() -> None:
    old = "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long>"
    assert flags_of_kernels([old]) == Flags(row_vectors=False)
    assert flags_of_kernels(["void at::native::vectorized_gather_kernel<16, long>"]) == Flags()


def _time_s(call: OpCall, device: str = "H100-SXM") -> float:
    work = work_of(call)
    assert work is not None
    found = estimate_op(call, work, target_device(device), cold_bytes=work.bytes_moved)
    assert found is not None
    return found.time_s


def test_the_rows_that_a_bag_does_not_name_cost_nothing() -> None:
    def bags(rows: int) -> OpCall:
        table, where = _dense((rows, 64), "float32"), _dense((655_360,), "int64")
        starts = _dense((32_768,), "int64")
        out = (_dense((32_768, 64), "float32"), _dense((655_360,), "int64"), starts, starts)
        args = (table, where, starts, False, 0, False, None, False, -1)
        return OpCall("aten::_embedding_bag", args, out, "default")

    # 655,360 lookups either way: the table is no operand that a thread stands for.
    assert _time_s(bags(10_000_000)) == pytest.approx(_time_s(bags(1_000_000)), rel=1e-9)


def test_zeros_like_a_gradient_are_a_stream_of_writes() -> None:
    def zeros(rows: int, device: str) -> float:
        shape = (32_768, 512)
        args = (_dense((rows, 512), "float32"), shape, None, None, None, None)
        made = (_dense(shape, "float32"),)
        return _time_s(OpCall("aten::new_zeros", args, made, "default"), device)

    for device in ("H100-SXM", "B200"):
        # The gradient lends its dtype and its device, whatever its shape.
        assert zeros(512, device) == zeros(4096, device) == zeros(32_768, device)
    # 67 MB at 3.35 TB/s are 20 us.
    assert 20e-6 < zeros(4096, "H100-SXM") < 30e-6


def test_a_gated_unit_computes_an_address_for_each_result() -> None:
    x, out = _dense((32_768, 1024)), _dense((32_768, 512))
    call = OpCall("aten::glu", (x, -1), (out,), "default")
    assert _indexed(call) == out.numel


def test_the_least_and_the_largest_are_a_reduction_like_one_of_them() -> None:
    x, one = _dense((32_768, 512), "float32"), _dense((), "float32")
    both = OpCall("aten::aminmax", (x, None, False), (one, one), "default")
    assert _time_s(both) < 1.1 * _time_s(OpCall("aten::amax", (x, (), False), (one,), "default"))


def test_a_sparse_update_computes_the_addresses_of_its_entries_alone() -> None:
    indices, values = _dense((1, 4096), "int64"), _dense((4096, 64), "float32")
    for rows in (10_000, 10_000_000):
        table = _dense((rows, 64), "float32")
        update = ("sparse_coo", indices, values)
        call = OpCall("aten::add_", (table, update, -0.1), (table,), "Tensor")
        assert _indexed(call) == 4096 * 64


def test_an_element_wise_kernel_that_converts_takes_elements_one_by_one() -> None:
    x, wide = _dense((8192, 1024)), _dense((8192, 1024), "float32")

    def converted(call: OpCall) -> float:
        work = work_of(call)
        assert work is not None
        (walk,) = walks_of(call, work, CUDA)
        assert not walk.indexed
        return walk.converted

    def copied(source: TensorSpec, target: TensorSpec) -> OpCall:
        return OpCall("aten::copy_", (target, source), (target,), "default")

    elements = 8192 * 1024
    assert converted(copied(x, wide)) == elements
    assert converted(OpCall("aten::_to_copy", (x,), (wide,), "default")) == elements
    assert converted(OpCall("aten::add", (wide, x), (wide,), "Tensor")) == elements
    # Copies from float32 to 16 bits have kernels of their own, and comparisons give booleans.
    assert converted(copied(wide, x)) == converted(copied(x, x)) == 0
    assert converted(OpCall("aten::gt", (x, x), (_dense((8192, 1024), "bool"),), "Tensor")) == 0
    number = replace(_dense((), "float64"), device="cpu")
    assert converted(OpCall("aten::mul", (x, number), (x,), "Tensor")) == 0


def test_functions_computed_in_parts_take_longer_than_fast_memory() -> None:
    x = _dense((8192, 4096))

    def time_s(name: str, device: str, how: tuple[str, ...] = ()) -> float:
        return _time_s(OpCall(f"aten::{name}", (x, *how), (x,), "default"), device)

    # 134 MB at 4.8 TB/s are 28 us; 33.5 million elements of 42 instructions 42.
    for device in ("H200", "B200"):
        assert time_s("gelu", device, ("none",)) > 1.25 * time_s("relu", device)
        assert time_s("tanh", device) == pytest.approx(time_s("gelu", device, ("none",)), rel=0.01)
    # Hidden behind slow memory, and where a multiprocessor issues two for each float32 unit.
    for device in ("T4", "A100-SXM-80GB"):
        assert time_s("gelu", device, ("none",)) < 1.1 * time_s("relu", device)


def test_a_recipe_that_fails_on_a_whole_call_is_ours_to_mend() -> None:
    x = _dense((8, 4))
    right = OpCall("aten::cumsum", (x, 0), (x,))
    work = work_of(right)
    assert work is not None
    wrong = OpCall("aten::cumsum", (x, "rows"), (x,))
    assert walks_of(wrong, work, CUDA) == (Walk(),)
    (notice,) = failure_notices([wrong])
    assert "aten::cumsum" in notice and "a bug in gobrrr" in notice
    # Of another call, or of another program, nothing is said.
    assert failure_notices([right]) == []
    forget_failures()
    # A trace leaves arguments out, and results always.
    of_trace = OpCall("aten::cumsum", (x,))
    assert walks_of(of_trace, work, CUDA) == (Walk(),)
    assert failure_notices([of_trace]) == []
