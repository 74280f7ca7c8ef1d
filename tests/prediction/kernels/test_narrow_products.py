"""Products of numbers of every width: the bytes of their tiles, and the rows of their loads."""

from __future__ import annotations

import pytest

from gobrrr.devices.datasheet import all_datasheets
from gobrrr.prediction.kernels.coefficients import coefficients_of
from gobrrr.prediction.kernels.contraction_shapes import products_of
from gobrrr.prediction.kernels.products import Product, TiledTime, item_bytes, time_of_product
from gobrrr.prediction.kernels.target import target_device
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work import work_of
from prediction.kernels.toy_device import IDEAL, toy_device


def test_every_dtype_with_a_rate_has_a_size() -> None:
    sizes = {dtype: item_bytes(dtype) for sheet in all_datasheets() for dtype in sheet.matrix}
    assert sizes["tf32"] == sizes["float32"] == 4
    assert sizes["float64"] == 8
    assert sizes["int8"] == sizes["float8_e4m3fn"] == sizes["float8_e5m2"] == 1
    assert sizes["float4_e2m1fn_x2"] == 0.5


def _with_vector(dtype: str) -> TiledTime:
    found = time_of_product(Product(8192, 1, 8192, 1, dtype, 0.0), toy_device(), IDEAL, 1e12)
    assert found is not None
    return found


def test_a_matrix_takes_its_own_bytes_from_the_cache() -> None:
    # 8192 x 8192 at 4 TB/s, a byte each, is 16.8 us.
    assert _with_vector("int8").memory_s == pytest.approx(8192 * 8192 / 4e12)
    assert _with_vector("float8_e4m3fn").memory_s == _with_vector("int8").memory_s
    assert _with_vector("bfloat16").memory_s == pytest.approx(2 * _with_vector("int8").memory_s)
    assert _with_vector("float64").memory_s == pytest.approx(8 * _with_vector("int8").memory_s)


@pytest.mark.parametrize(
    ("dtype", "step"),
    [("float64", 2), ("float32", 4), ("bfloat16", 8), ("int8", 16), ("float8_e4m3fn", 16)],
)
def test_rows_are_aligned_at_16_bytes(dtype: str, step: int) -> None:
    def aligned(side: int) -> bool:
        a = TensorSpec((64, side), dtype)
        name = "_int_mm" if dtype == "int8" else "mm"
        call = OpCall(f"aten::{name}", (a, TensorSpec((side, 64), dtype)), None)
        work = work_of(call)
        assert work is not None
        (found,) = products_of(call, work, coefficients_of(None), 0.0)
        return found.aligned

    assert aligned(step) and aligned(3 * step)
    assert not aligned(step + step // 2)


def test_an_element_of_float4_is_two_values() -> None:
    a = TensorSpec((128, 256), "float4_e2m1fn_x2")
    b = TensorSpec((256, 64), "float4_e2m1fn_x2", (1, 256))
    scale = TensorSpec((1,), "float32")
    call = OpCall("aten::_scaled_mm", (a, b, scale, scale, None, None, "bfloat16", False), None)
    work = work_of(call)
    assert work is not None
    # 2 * 128 * 64 * 512; 128 * 256 and 256 * 64 bytes, and two scales.
    assert work.matrix_flops == 2 * 128 * 64 * 512
    assert work.bytes_read == 128 * 256 + 256 * 64 + 8
    (found,) = products_of(call, work, coefficients_of(target_device("B200").sheet), 0.0)
    assert (found.m, found.n, found.k) == (128, 64, 512)
