"""Walks that go along columns, over operands of one number, or over what has to be copied first."""

from __future__ import annotations

from math import ceil

import pytest

from gobrrr.prediction.kernels.kernel_model import estimate_op
from gobrrr.prediction.kernels.target import target_device
from gobrrr.prediction.kernels.walks.walk import Machine, Walk
from gobrrr.prediction.kernels.walks.walks import walks_of
from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
from gobrrr.work import work_of

H100 = Machine(0.5, "cuda", 132, 50 * 2**20)
GPU = "cuda:0"


def _dense(*shape: int, device: str = GPU) -> TensorSpec:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return TensorSpec(shape, "float32", tuple(reversed(strides)), None, device, 0)


def _walks(name: str, *args: Arg, out: TensorSpec) -> tuple[Walk, ...]:
    call = OpCall(f"aten::{name}", args, (out,), "default")
    work = work_of(call)
    assert work is not None
    return walks_of(call, work, H100)


def test_a_norms_order_is_no_dimension() -> None:
    x = _dense(64, 128, 256)
    # ``(x, 2, [2])``: 2 is the order; [2] the dimension, the last one: a stream.
    (along,) = _walks("linalg_vector_norm", x, 2, (2,), out=_dense(64, 128))
    assert along.efficiency == 1.0
    (across,) = _walks("linalg_vector_norm", x, 2, (1,), out=_dense(64, 256))
    assert across.efficiency == 0.85
    (whole,) = _walks("linalg_vector_norm", x, 2, None, out=_dense())
    assert whole.efficiency == 1.0


@pytest.mark.parametrize(("device", "indexed"), [(GPU, 1024 * 1024), ("cpu", 0)])
def test_a_number_on_the_device_is_an_operand_with_addresses(device: str, indexed: int) -> None:
    x = _dense(1024, 1024)
    (walk,) = _walks("div", x, _dense(device=device), out=x)
    assert walk.indexed == indexed
    (walk,) = _walks("div", x, 3.0, out=x)
    assert walk.indexed == 0


def test_an_instance_norm_without_weight_is_pytorchs_own() -> None:
    def norm(channels: int, weight: TensorSpec | None) -> tuple[Walk, ...]:
        x = _dense(1, channels, 256, 256)
        args = (x, weight, weight, None, None, True, 0.1, 1e-5)
        return _walks("native_batch_norm", *args, out=x)

    # A block of 512 threads for each channel of 65536 elements: 128 trips. 528 blocks run at once.
    for channels, rounds in ((64, 1), (528, 1), (529, 2), (5280, 10)):
        statistics, _, result = norm(channels, None)
        assert statistics.trips == 128 * rounds, channels
        assert (statistics.writes, statistics.programs) == (0, channels)
        assert (result.reads, result.writes) == (1, 1)
    # With a weight cuDNN takes it, in one kernel.
    assert len(norm(64, _dense(64))) == 1


def test_a_softmax_of_columns_reads_from_memory_what_the_cache_cannot_hold() -> None:
    # 64 blocks of 1024 columns, of 4096 elements each: 16 MiB a block, 1 GiB under way.
    (walk,) = _walks("_softmax", _dense(4096, 65536), 0, False, out=_dense(4096, 65536))
    # A quarter of 50 MiB stays: 1 + 2 (1 - 12.5 / 1024).
    assert walk.cold_reads == pytest.approx(3 - 2 * 12.5 / 1024)
    # Three readings of 4096 elements, four loads under way.
    assert walk.trips == 3 * 4096 / 4
    # 512 columns of 16 elements: one block of 32 KiB, which stays.
    (walk,) = _walks("_softmax", _dense(1, 16, 512), 1, False, out=_dense(1, 16, 512))
    assert (walk.cold_reads, walk.trips) == (1.0, 12)
    # Eight columns of 4096: 128 threads share a column, 32 elements each.
    (walk,) = _walks("_softmax", _dense(100, 4096, 8), 1, False, out=_dense(100, 4096, 8))
    assert walk.trips == 3 * 32 / 4
    assert walk.programs == 100 * 1024 / 32


@pytest.mark.parametrize("columns", [1024, 270_336, 270_337])
def test_a_scan_of_columns_waits_for_each_element(columns: int) -> None:
    (walk,) = _walks("cumsum", _dense(100, columns), 0, out=_dense(100, columns))
    # 2048 threads on each of 132 multiprocessors, a column each: 270336 at once.
    assert walk.trips == 100 * ceil(columns / 270_336)


def test_what_is_not_row_major_is_copied_first() -> None:
    whole, part = _dense(1000, 4000), TensorSpec((1000, 4000), "float32", (4001, 1), None, GPU, 0)
    out = _dense(1000, 4000)
    for name, extra in (("cumsum", (1,)), ("_softmax", (1, False))):
        plain = _walks(name, whole, *extra, out=out)
        copy, *same = _walks(name, part, *extra, out=out)
        assert len(same) == len(plain)
        assert (copy.reads, copy.writes, copy.efficiency) == (1.0, 1.0, 1.0)
        assert copy.indexed == 4_000_000
    # A transposed one is read across its rows.
    crossed = TensorSpec((1000, 4000), "float32", (1, 1000), None, GPU, 0)
    assert _walks("cumsum", crossed, 1, out=out)[0].efficiency == H100.strided


def _sum_of_columns(rows: int, columns: int, device: str) -> float:
    x, out = _dense(rows, columns), _dense(1, columns)
    call = OpCall("aten::sum", (x, (0,), True), (out,), "dim_IntList")
    work = work_of(call)
    assert work is not None
    found = estimate_op(call, work, target_device(device))
    assert found is not None
    return found.time_s


def test_the_last_block_of_a_sum_along_columns_reads_what_the_others_left() -> None:
    # 1024 rows: 16 blocks of 4 rows at a time for each group of columns, whatever their number.
    narrow = _sum_of_columns(1024, 128, "A100-PCIe-40GB")
    assert 8e-6 < narrow < 11e-6
    assert _sum_of_columns(1024, 768, "A100-PCIe-40GB") == pytest.approx(narrow, rel=0.1)
    # 8192 rows of 1024 columns: 128 blocks for each group, of which the last reads 32 times.
    stream_s = 8192 * 1024 * 4 / 4.8e12
    assert _sum_of_columns(8192, 1024, "H200") > stream_s + 32 * 0.7e-6
    # Few rows are summed by one block for each group.
    assert _sum_of_columns(128, 1024, "H200") < 5e-6


def test_few_blocks_sum_up_the_gradients_of_a_narrow_layer_norm() -> None:
    def programs(rows: int, columns: int) -> float | None:
        x, one, weight = _dense(rows, columns), _dense(rows, 1), _dense(columns)
        args = (x, x, (columns,), one, one, weight, weight, (True, True, True))
        call = OpCall("aten::native_layer_norm_backward", args, (x, weight, weight), "default")
        work = work_of(call)
        assert work is not None
        return walks_of(call, work, H100)[1].programs

    assert programs(8192, 1024) == 32
    # Rows beyond 65,536 are shared, where columns alone would leave half of the device idle.
    assert programs(65_537, 1024) is None
    assert programs(65_537, 8192) == 256
