"""What is fetched for tensors with holes: closed forms, and nothing more for those without."""

from __future__ import annotations

import pytest

from gobrrr.prediction.kernels.kernel_model import estimate_op
from gobrrr.prediction.kernels.target import target_device
from gobrrr.prediction.kernels.walks.sectors import sectors_over_bytes
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work import work_of


def _sum(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str = "float32") -> OpCall:
    x = TensorSpec(shape, dtype, strides, 0, "cuda:0", 0)
    return OpCall("aten::sum", (x, (1,), False, None), (TensorSpec(shape[:1], dtype),))


def _ratio(call: OpCall) -> float:
    work = work_of(call)
    assert work is not None
    return sectors_over_bytes(call, work)


@pytest.mark.parametrize(
    ("shape", "strides", "dtype", "ratio"),
    [
        # Whole rows, transposed ones, broadcast ones: what the elements take.
        ((512, 512), (512, 1), "float32", 1),
        ((512, 512), (1, 512), "float32", 1),
        ((512, 512), (0, 1), "float32", 1),
        # Every second, eighth and sixteenth of 4 bytes; every eighth of 2, of 8.
        ((512, 512), (1024, 2), "float32", 2),
        ((512, 512), (4096, 8), "float32", 8),
        ((512, 512), (8192, 16), "float32", 8),
        ((512, 512), (4096, 8), "bfloat16", 8),
        ((512, 512), (4096, 8), "float64", 4),
        # A column; four numbers out of every eight, and out of every sixteen; a diagonal of each
        # of many matrices.
        ((512, 1), (512, 1), "float32", 8),
        ((512, 4), (8, 1), "float32", 2),
        ((512, 4), (16, 1), "float32", 2),
        ((512, 128), (16384, 129), "float32", 8),
    ],
)
def test_elements_apart_cost_a_sector_each(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: str, ratio: float
) -> None:
    assert _ratio(_sum(shape, strides, dtype)) == pytest.approx(ratio, rel=0.01)


def test_a_table_of_which_rows_are_looked_up_is_not_fetched_whole() -> None:
    table = TensorSpec((50_000, 64), "float32", (512, 8), 0, "cuda:0", 0)
    rows = TensorSpec((64,), "int64", (1,), 1, "cuda:0", 0)
    call = OpCall("aten::index_select", (table, 0, rows), (TensorSpec((64, 64), "float32"),))
    assert _ratio(call) == 1


@pytest.mark.parametrize("device", ["T4", "H100-SXM"])
def test_every_eighth_number_takes_all_of_the_memory(device: str) -> None:
    call, target = _sum((65_536, 512), (4096, 8)), target_device(device)
    work = work_of(call)
    assert work is not None and work.bytes_moved is not None
    found = estimate_op(call, work, target, cold_bytes=work.bytes_moved)
    assert found is not None
    # 33.5 M sectors of 32 bytes.
    peak = target.ceilings.levels[-1].bandwidth_bytes_per_s(0.0)
    assert 1 < found.time_s / (65_536 * 512 * 32 / peak) < 1.5
    # What the op needs at the least is as before.
    assert work.bytes_read == 65_536 * 512 * 4
