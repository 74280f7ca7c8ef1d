"""Pooling, depthwise windows and attention whose kernels depend on dtype and size."""

from __future__ import annotations

import pytest

from gobrrr.prediction.kernels.kernel_model import KernelEstimate, estimate_op
from gobrrr.prediction.kernels.target import target_device
from gobrrr.prediction.kernels.walks.walk import Machine
from gobrrr.prediction.kernels.walks.walks import walks_of
from gobrrr.timeline.ops import OpCall
from gobrrr.work import work_of
from gobrrr.work.formulas.attention import FORWARD_VECTOR
from prediction.kernels.toy_device import IDEAL, aten, spec, toy_device

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
    # 2 x 1280 x 640 x (126 + 2); a comparison (1) and a root (4) for each result; the squares of
    # the rows and their sums.
    assert work.matrix_flops == 2 * 1280 * 640 * 128
    assert work.vector_flops == 5 * 1280 * 640 + 2 * (1280 + 640) * 126
    found = estimate_op(call, work, toy_device(), coefficients=IDEAL, cold_bytes=0.0)
    assert found is not None
    # Whole tiles at 1 TFLOP/s on 10 multiprocessors.
    assert found.compute_s == pytest.approx(work.matrix_flops / 1e12, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "sizes", "taps"),
    [
        ("upsample_linear1d_backward", (1,), 2),
        ("upsample_bilinear2d_backward", (1, 1), 4),
        ("upsample_bicubic2d_backward", (1, 1), 16),
        ("upsample_trilinear3d_backward", (1, 1, 1), 8),
        # Antialiased: shrunk by 2 in both dimensions, twice as many taps in each.
        ("_upsample_bilinear2d_aa_backward", (-1, -1), 16),
    ],
)
def test_a_gradient_is_added_to_each_element_that_it_came_from(
    name: str, sizes: tuple[int, ...], taps: int
) -> None:
    small, large = spec(2, 3, *(16 for _ in sizes)), spec(2, 3, *(32 for _ in sizes))
    grad, result = (large, small) if sizes[0] > 0 else (small, large)
    call = aten(name, grad, grad.shape[2:], result.shape, False, outputs=(result,))
    work = work_of(call)
    assert work is not None
    zeroing, adding = walks_of(call, work, MACHINE)
    assert zeroing.reads == 0
    # Each addition reads and writes a float.
    assert adding.writes * result.numel == pytest.approx(2 * taps * grad.numel)
    # In 1-D and 3-D a thread goes through images and channels.
    assert adding.trips == (0 if len(sizes) == 2 else 6)


def test_a_gradient_takes_longer_than_resampling() -> None:
    device = target_device("H100-SXM")

    def seconds(call: OpCall) -> float:
        work = work_of(call)
        assert work is not None
        found = estimate_op(call, work, device)
        assert found is not None
        return found.time_s

    for name, rank in (("linear1d", 1), ("bilinear2d", 2), ("bicubic2d", 2), ("trilinear3d", 3)):
        side = {1: 1 << 16, 2: 256, 3: 40}[rank]
        x, y = spec(8, 16, *(side,) * rank), spec(8, 16, *(2 * side,) * rank)
        forward = aten(f"upsample_{name}", x, y.shape[2:], False, outputs=(y,))
        arguments = (y, y.shape[2:], x.shape, False)
        backward = aten(f"upsample_{name}_backward", *arguments, outputs=(x,))
        assert seconds(backward) > seconds(forward)
    for rank in (2, 3):
        side = {2: 256, 3: 40}[rank]
        x, grid = spec(8, 16, *(side,) * rank), spec(8, *(side,) * rank, rank)
        forward = aten(f"grid_sampler_{rank}d", x, grid, 0, 0, False, outputs=(x,))
        arguments = (x, x, grid, 0, 0, False, (True, True))
        backward = aten(f"grid_sampler_{rank}d_backward", *arguments, outputs=(x, grid))
        only_grid = aten(
            f"grid_sampler_{rank}d_backward", *arguments[:-1], (False, True), outputs=(grid,)
        )
        assert seconds(backward) > 1.5 * seconds(forward)
        assert seconds(only_grid) < seconds(backward)


def test_a_published_time_of_resampling_in_three_dimensions() -> None:
    # H20, github.com/flagos-ai/FlagGems/pull/3555.
    x, y = spec(8, 16, 4, 32, 32), spec(8, 16, 8, 64, 64)
    call = aten("upsample_trilinear3d", x, y.shape[2:], False, outputs=(y,))
    work = work_of(call)
    assert work is not None
    found = estimate_op(call, work, target_device("H20"))
    assert found is not None
    assert 86e-6 / 1.5 < found.time_s < 86e-6 * 1.5
