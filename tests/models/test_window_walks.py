"""Pooling, depthwise windows and attention whose kernels depend on dtype and size."""

from __future__ import annotations

import pytest

from gobrrr.models.kernel_model import KernelEstimate, estimate_op
from gobrrr.models.target import target_device
from gobrrr.models.walk import Machine
from gobrrr.models.walks import walks_of
from gobrrr.timeline.ops import OpCall
from gobrrr.work import work_of
from gobrrr.work.attention import FORWARD_VECTOR
from models.toy_device import IDEAL, aten, spec, toy_device

MACHINE = Machine(0.5, "cuda", 132, 50 * 2**20)


def _slots(call: OpCall) -> float:
    work = work_of(call)
    assert work is not None
    (walk,) = walks_of(call, work, MACHINE)
    return walk.slots


@pytest.mark.parametrize(
    ("name", "window", "out", "slots"),
    [
        # Three divisions of 50 slots a result, 32 for each element that is compared.
        ("max_pool2d_with_indices", (2, 2), (8, 8), 150 + 4 * 32),
        ("max_pool2d_with_indices", (4, 4), (4, 4), 150 + 16 * 32),
        # 12 for each that is added, and for the division by their number.
        ("avg_pool2d", (2, 2), (8, 8), 150 + (4 + 1) * 12),
        # In 3-D a block knows its row and column: one division.
        ("max_pool3d_with_indices", (2, 2, 2), (8, 8, 8), 50 + 8 * 32),
        ("avg_pool3d", (2, 2, 2), (8, 8, 8), 50 + (8 + 1) * 12),
    ],
)
def test_a_window_costs_its_place_and_its_elements(
    name: str, window: tuple[int, ...], out: tuple[int, ...], slots: float
) -> None:
    x = spec(2, 3, *(16 for _ in window))
    result = spec(2, 3, *out)
    results = 2 * 3 * result.numel // 6
    assert _slots(aten(name, x, window, window, outputs=(result,))) == results * slots


def _depthwise(side: int, dtype: str) -> KernelEstimate:
    x, weight = spec(8, 64, 256, 256, dtype=dtype), spec(64, 1, side, side, dtype=dtype)
    half = side // 2
    args = (x, weight, None, (1, 1), (half, half), (1, 1), False, (0, 0), 64)
    call = aten("convolution", *args, outputs=(x,))
    work = work_of(call)
    assert work is not None
    found = estimate_op(call, work, target_device("H100-SXM"), cold_bytes=work.bytes_moved)
    assert found is not None
    return found


def test_depthwise_squares_beyond_five_have_no_kernel_of_their_size_in_float32() -> None:
    # Taps: 49 of 25, at a quarter of the rate.
    ratio = _depthwise(7, "float32").compute_s / _depthwise(5, "float32").compute_s
    assert ratio == pytest.approx(4 * 49 / 25, rel=1e-6)
    ratio = _depthwise(7, "float16").compute_s / _depthwise(5, "float16").compute_s
    assert ratio == pytest.approx(49 / 25, rel=1e-6)


def _attention(d: int, kind: str = "cuda") -> KernelEstimate:
    # 10 x 10 blocks of 128 queries on 10 multiprocessors, against 10 blocks of 128 keys.
    q = spec(1, 10, 1280, d)
    call = aten("_scaled_dot_product_efficient_attention", q, q, q, None, False, outputs=(q,))
    work = work_of(call)
    assert work is not None
    found = estimate_op(call, work, toy_device(kind), coefficients=IDEAL, cold_bytes=0.0)
    assert found is not None
    return found


def _blocks_s(d: int, rate: float) -> float:
    """Of all blocks on 10 multiprocessors, at 0.6 of FlashAttention-2's rate."""
    pairs = 128 * 128
    products_s = 2 * 2 * pairs * d / (rate / 10)
    softmax_s = max(pairs * FORWARD_VECTOR / (1e12 / 10), pairs / (1e11 / 10))
    # 100 blocks of queries on 10 multiprocessors, and half a round that is ragged, at most 10.
    return 10 * 10 * (products_s + softmax_s) / 0.6


def test_attention_in_float32_is_three_products_in_tf32() -> None:
    # 5 TFLOP/s in TF32, so 1.67 in float32, of which the vector path has 1.
    found = _attention(64)
    assert found.compute_s == pytest.approx(_blocks_s(64, 5e12 / 3), rel=1e-6)
    assert found.roof.matrix_s == pytest.approx(4 * 10 * 1280**2 * 64 * 3 / 5e12, rel=1e-6)
    # Other vendors' kernels are not these.
    assert _attention(64, "hip").compute_s == pytest.approx(_blocks_s(64, 1e12), rel=1e-6)


def test_results_of_large_heads_are_read_and_written_for_each_block_of_keys() -> None:
    # 10 heads x 1280 rows x 256 in float32, for each of 10 blocks of keys, from a cache of 4 TB/s.
    spilled_s = 2 * 4 * 10 * 1280 * 256 * 10 / 4e12
    found = _attention(256)
    assert found.compute_s == pytest.approx(_blocks_s(256, 5e12 / 3) + spilled_s, rel=1e-6)


def test_a_dot_product_is_a_stream() -> None:
    x, y = spec(10_000_000, storage=1), spec(10_000_000, storage=2)
    call = aten("dot", x, y, outputs=(spec(),))
    work = work_of(call)
    assert work is not None
    found = estimate_op(call, work, toy_device(), coefficients=IDEAL, cold_bytes=80e6)
    assert found is not None
    # 2 x 40 MB at 1 TB/s; 20 million operations at 1 TFLOP/s meanwhile.
    assert found.kernels == 2
    assert found.traffic_s == pytest.approx(80e6 / 1e12, rel=1e-6)
    assert found.compute_s == pytest.approx(20e6 / 1e12, rel=1e-6)


def test_distances_are_a_product_with_two_more_columns() -> None:
    x, y = spec(1280, 126), spec(640, 126)
    call = aten("_euclidean_dist", x, y, outputs=(spec(1280, 640),))
    work = work_of(call)
    assert work is not None
    # 2 x 1280 x 640 x (126 + 2); a comparison and a root for each result, at 2 operations each.
    assert work.matrix_flops == 2 * 1280 * 640 * 128
    assert work.vector_flops == 4 * 1280 * 640
    found = estimate_op(call, work, toy_device(), coefficients=IDEAL, cold_bytes=0.0)
    assert found is not None
    # Whole tiles at 1 TFLOP/s on 10 multiprocessors.
    assert found.compute_s == pytest.approx(work.matrix_flops / 1e12, rel=1e-6)
