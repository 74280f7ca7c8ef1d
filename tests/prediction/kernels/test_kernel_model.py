from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.prediction.kernels.contraction_shapes import products_of
from gobrrr.prediction.kernels.kernel_model import Flags, KernelEstimate, estimate_op, target_device
from gobrrr.prediction.kernels.target import TargetDevice, all_target_devices
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.ops import OpCall
from gobrrr.work import work_of
from prediction.kernels.toy_device import CACHE_BYTES, IDEAL, aten, spec, toy_device

DEVICES = [target_device(name) for name in ("H100-SXM", "A100", "RTX-4090", "MI300X")]


def ideal(call: OpCall, **options: object) -> KernelEstimate:
    work = work_of(call)
    assert work is not None
    found = estimate_op(call, work, toy_device(), coefficients=IDEAL, **options)  # type: ignore[arg-type]
    assert found is not None
    return found


def estimated(call: OpCall, device: TargetDevice) -> KernelEstimate:
    work = work_of(call)
    assert work is not None
    found = estimate_op(call, work, device)
    assert found is not None
    return found


def test_a_long_stream_takes_its_bytes_at_the_memorys_bandwidth() -> None:
    # 25e6 float32 read and written: 2 * 100 MB at 1 TB/s are 200 us, and 1 us of fixed cost.
    found = ideal(aten("relu", spec(25_000_000)))
    assert found.time_s == pytest.approx(201e-6)
    assert (found.kernels, found.fixed_s, found.regime) == (1, 1e-6, "memory")
    assert found.level == "dram"


def test_a_small_stream_comes_from_the_cache_and_is_mostly_fixed_cost() -> None:
    # 100 000 float32, 0.8 MB: 0.2 us at 4 TB/s.
    found = ideal(aten("relu", spec(100_000)))
    assert found.time_s == pytest.approx(1.2e-6)
    assert (found.regime, found.level) == ("overhead", "l2")
    # The same from memory: 0.8 us.
    cold = ideal(aten("relu", spec(100_000)), cold_bytes=800_000)
    assert cold.time_s == pytest.approx(1.8e-6)


def test_a_working_set_over_half_the_cache_counts_as_cold() -> None:
    elements = CACHE_BYTES // 4  # read and written: twice the cache
    assert ideal(aten("relu", spec(elements))).level == "dram"
    assert ideal(aten("relu", spec(elements // 8))).level == "l2"


def test_a_large_product_reaches_the_matrix_rate() -> None:
    # 2560 = 10 tiles of 256: 20 x 10 tiles of 128 x 256 over 10 multiprocessors, 20 each, no
    # waste. 2 * 2560 ** 3 FLOPs at 10 TFLOP/s: 3.355 ms.
    call = aten("mm", spec(2560, 2560, dtype="bfloat16"), spec(2560, 2560, dtype="bfloat16"))
    found = ideal(call)
    assert found.time_s == pytest.approx(2 * 2560**3 / 10e12 + 1e-6, rel=1e-3)
    assert found.regime == "compute"


def test_float32_products_use_tf32_only_where_pytorch_allows_it() -> None:
    square = aten("mm", spec(2560, 2560), spec(2560, 2560))
    by_default = ideal(square)
    allowed = ideal(square, flags=Flags(tf32_matmul=True))
    # 1 TFLOP/s on the vector path, 5 in TF32.
    assert by_default.time_s == pytest.approx(2 * 2560**3 / 1e12, rel=1e-2)
    assert allowed.time_s == pytest.approx(2 * 2560**3 / 5e12, rel=1e-2)
    x, weight = spec(32, 256, 32, 32), spec(256, 256, 3, 3)
    convolution = aten("convolution", x, weight, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    slower = ideal(convolution, flags=Flags(tf32_convolution=False))
    # 36 products by Winograd where TF32 takes 144, at a fifth of the rate and with transforms.
    in_tf32 = ideal(convolution)
    assert slower.time_s > in_tf32.time_s
    direct = 2 * 9 * 256 * 256 * 32 * 32 * 32 / 1e12
    assert direct / 4 <= slower.roof.time_s <= slower.time_s < direct
    assert in_tf32.roof.time_s == pytest.approx(direct / 5)


def test_small_images_fill_tiles_of_winograd_badly() -> None:
    # Tiles of 8 x 16 results: 16 x 16 are two of them, and so are 10 x 10, 2.6 times fewer.
    device = target_device("T4")

    def seconds(size: int) -> float:
        call = aten("convolution", spec(1, 512, size, size), spec(256, 512, 3, 3), None, (1, 1),
                    (1, 1), (1, 1), False, (0, 0), 1)  # fmt: skip
        found = estimated(call, device)
        assert "F(2x2" in found.because
        return found.compute_s

    assert seconds(10) == pytest.approx(seconds(16))
    assert seconds(18) > 1.5 * seconds(16)


def test_winograd_takes_dense_windows_at_stride_1() -> None:
    device = target_device("T4")
    x, weight = spec(32, 256, 32, 32), spec(256, 256, 3, 3)

    def found(size: int, stride: int, apart: int) -> KernelEstimate:
        small = spec(32, 256, size, size)
        pads = (apart, apart)
        args = (small, weight, None, (stride, stride), pads, pads, False, (0, 0), 1)
        return estimated(aten("convolution", *args), device)

    assert "Winograd" in found(32, 1, 1).because
    # Dilated and padded by as much its result has the size of its input, and so has one pixel at
    # any stride.
    dilated = found(32, 1, 2)
    assert "implicit GEMM" in dilated.because
    assert "implicit GEMM" in found(1, 2, 1).because
    whole = work_of(aten("convolution", x, weight, None, (1, 1), (2, 2), (2, 2), False, (0, 0), 1))
    assert whole is not None and whole.matrix_flops is not None
    rate = device.ceilings.matrix_flops_per_s("float32")
    assert rate is not None
    assert dilated.roof.time_s == pytest.approx(whole.matrix_flops / rate)


@pytest.mark.parametrize("name", ["mm", "bmm", "matmul", "linear", "addmm"])
@pytest.mark.parametrize(("m", "n"), [(256, 1024), (1024, 256)])
def test_a_complex_product_is_four_real_ones(name: str, m: int, n: int) -> None:
    batch = (2,) if name == "bmm" else ()
    a, b = (spec(*batch, *each, dtype="complex64") for each in ((m, 512), (512, n)))
    if name == "linear":
        b = spec(n, 512, dtype="complex64")
    added = [spec(m, n, dtype="complex64")] if name == "addmm" else []
    call = aten(name, *added, a, b)
    work = work_of(call)
    assert work is not None
    (product,) = products_of(call, work, IDEAL, 0.0)
    flops = 2.0 * product.m * product.n * product.k * product.batch
    assert flops == work.matrix_flops == 8.0 * m * 512 * n * (batch or (1,))[0]
    # And its larger input is as large: two numbers an element.
    inputs = (product.m * product.k, product.n * product.k)
    assert max(inputs) == 2 * max(a.numel, b.numel) // (batch or (1,))[0]


@pytest.mark.parametrize("few", [1, 16])
def test_a_complex_product_reads_its_larger_factor_once(few: int) -> None:
    device = target_device("L4")
    thin, wide, tall = (
        spec(*shape, dtype="complex64") for shape in ((few, 4096), (4096, 4096), (4096, few))
    )
    flat, upright = (estimated(aten("mm", *each), device) for each in ((thin, wide), (wide, tall)))
    assert flat.time_s == pytest.approx(upright.time_s, rel=0.1)
    assert flat.time_s < 1.5 * flat.roof.time_s


def test_wave_quantisation() -> None:
    # 12 tiles of 128 x 128 on 10 multiprocessors: two rounds where one would be 10; cut smaller,
    # 48 tiles of 64 x 64 are 5 on the busiest, four at once and then one at half the rate. Tiles
    # of 16 x 16 waste least: 77 on the busiest, 64 at once and 13 that fill it too: 77 / 64.
    full = aten("bmm", spec(10, 128, 4096, dtype="bfloat16"), spec(10, 4096, 128, dtype="bfloat16"))
    over = aten("bmm", spec(12, 128, 4096, dtype="bfloat16"), spec(12, 4096, 128, dtype="bfloat16"))
    whole, one_more = ideal(full).time_s - 1e-6, ideal(over).time_s - 1e-6
    assert one_more / whole == pytest.approx(77 / 64, rel=1e-3)


def test_few_tiles_cut_k() -> None:
    # One tile of results and a long k: alone it would use 1 of 10 multiprocessors.
    call = aten("mm", spec(64, 65536, dtype="bfloat16"), spec(65536, 64, dtype="bfloat16"))
    found = ideal(call)
    assert "split-k" in found.because
    assert found.kernels == 2


def test_a_skinny_product_takes_its_weight_at_the_memorys_bandwidth() -> None:
    # One row: 4096 x 16384 bfloat16, 134 MB at 1 TB/s.
    weight = spec(16384, 4096, dtype="bfloat16")
    call = aten("mm", spec(1, 16384, dtype="bfloat16"), weight)
    assert ideal(call).time_s == pytest.approx(134.2e-6 + 1e-6, rel=0.05)
    assert ideal(call).regime == "memory"


def test_depthwise_convolution_runs_on_the_vector_path_where_tiles_are_wasteful() -> None:
    x, weight = spec(32, 256, 64, 64, dtype="bfloat16"), spec(256, 1, 3, 3, dtype="bfloat16")
    call = aten("convolution", x, weight, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 256)
    found = ideal(call)
    assert "depthwise" in found.because
    # 2 * 9 * 32 * 256 * 64 * 64 FLOPs at the vector path's 1 TFLOP/s, at the least.
    assert found.time_s >= 604e-6


def test_softmax_of_rows_that_do_not_fit_on_chip_reads_them_again() -> None:
    short, long = spec(100_000, 1000), spec(1000, 100_000)
    one = ideal(aten("_softmax", short, 1, False))
    many = ideal(aten("_softmax", long, 1, False))
    # 12 operations for each of 1e8 elements at 1 TFLOP/s (behind them 0.8 ms of traffic); the long
    # rows are read for the maximum, for the sum and for the result, each exp computed twice.
    assert one.time_s == pytest.approx(1201e-6, rel=1e-2)
    assert many.time_s == pytest.approx(2401e-6, rel=1e-2)


def test_a_strided_read_costs_more_than_a_stream() -> None:
    plain = aten("copy_", spec(4096, 4096), spec(4096, 4096))
    crossed = aten("copy_", spec(4096, 4096), spec(4096, 4096, strides=(1, 4096)))
    assert ideal(crossed).time_s > 1.5 * ideal(plain).time_s


def test_optimizers_of_many_tensors_take_few_launches() -> None:
    small = tuple(spec(1000) for _ in range(200))
    found = ideal(aten("_foreach_add_", small, small, 1))
    # 64 tensors of two lists to a launch: 4 launches.
    assert found.kernels == 4


def test_what_cannot_be_known_is_none() -> None:
    call = aten("mm", spec(64, 64, dtype="float8_e4m3fn"), spec(64, 64, dtype="float8_e4m3fn"))
    work = work_of(call)
    assert work is not None
    assert estimate_op(call, work, toy_device()) is None
    unknown = replace(work, matrix_flops=None)
    assert estimate_op(call, unknown, toy_device()) is None


def test_a_view_costs_nothing() -> None:
    found = ideal(aten("view", spec(10, 10), (100,)))
    assert (found.time_s, found.kernels) == (0.0, 0)


def test_unknown_devices_are_answered_with_close_names() -> None:
    with pytest.raises(InputError, match="H100-SXM"):
        target_device("H100-SMX")


def test_every_row_of_the_table_is_a_target() -> None:
    for device in all_target_devices():
        assert device.kernel_fixed_s >= 0
        assert device.ceilings.levels


SIZES = st.integers(1, 4096)


@settings(max_examples=60)
@given(
    st.sampled_from(DEVICES), SIZES, SIZES, SIZES,
    st.sampled_from(["float32", "bfloat16"]), st.booleans(),
)  # fmt: skip
def test_products_are_above_their_roof_and_grow(
    device: TargetDevice, m: int, n: int, k: int, dtype: str, batched: bool
) -> None:
    def call(factor: int) -> OpCall:
        if batched:
            a, b = spec(factor * 4, m, k, dtype=dtype), spec(factor * 4, k, n, dtype=dtype)
            return aten("bmm", a, b)
        return aten("mm", spec(factor * m, k, dtype=dtype), spec(k, n, dtype=dtype))

    one, four = estimated(call(1), device), estimated(call(4), device)
    assert one.time_s >= one.roof.time_s
    assert four.time_s >= four.roof.time_s
    # Four times the work: quantisation and the choice between tiles leave some room.
    assert four.time_s >= 0.9 * one.time_s


@settings(max_examples=60)
@given(
    st.sampled_from(DEVICES), st.integers(1, 1 << 22),
    st.sampled_from(["relu", "gelu", "clone", "sum", "cumsum", "_softmax"]),
    st.sampled_from(["float32", "bfloat16"]),
)  # fmt: skip
def test_passes_over_memory_are_above_their_roof_and_grow(
    device: TargetDevice, size: int, name: str, dtype: str
) -> None:
    extra = {"cumsum": (1,), "_softmax": (1, False)}.get(name, ())
    one = estimated(aten(name, spec(2, size, dtype=dtype), *extra), device)
    two = estimated(aten(name, spec(4, size, dtype=dtype), *extra), device)
    assert one.time_s >= one.roof.time_s
    assert two.time_s >= 0.999 * one.time_s


def test_longer_attention_costs_more_and_backward_more_than_forward() -> None:
    for device in DEVICES:
        times = []
        for length in (128, 512, 2048, 8192):
            q = spec(4, 16, length, 64, dtype="bfloat16")
            times.append(
                estimated(
                    aten("_scaled_dot_product_flash_attention", q, q, q, 0.0, False), device
                ).time_s
            )
        assert times == sorted(times)
        assert times[-1] > 10 * times[-2]  # quadratic in the length: 16 times at the limit


def test_training_batch_norm_of_amd_takes_a_trip_for_each_element_of_a_thread() -> None:
    # 10 x 112 x 112 elements of a channel in 512 threads: 245 trips of 0.7 us one after the other.
    # Parameters in bfloat16 keep MIOpen out.
    x, channel = spec(10, 64, 112, 112, dtype="bfloat16"), spec(64, dtype="bfloat16")
    call = aten("native_batch_norm", x, channel, channel, channel, channel, True, 0.1, 1e-5)
    found = estimated(call, target_device("MI300X"))
    assert 245 * 0.7e-6 < found.time_s < 1.3 * 245 * 0.7e-6
    assert found.kernels == 3
    # cuDNN's threads, on NVIDIA, take 16 bytes at a time.
    assert estimated(call, target_device("H100-SXM")).time_s < found.time_s / 5


def test_a_contiguous_half_precision_convolution_is_converted_to_channels_last_and_back() -> None:
    x, weight = spec(8, 64, 56, 56, dtype="float16"), spec(64, 64, 3, 3, dtype="float16")
    last = spec(8, 64, 56, 56, dtype="float16", strides=(64 * 56 * 56, 1, 64 * 56, 64))
    rest = (None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    for device in (target_device("MI300X"), target_device("RTX-4090")):
        plain = estimated(aten("convolution", x, weight, *rest), device)
        direct = estimated(aten("convolution", last, weight, *rest), device)
        assert plain.kernels >= direct.kernels + 3
        assert plain.time_s > direct.time_s


def test_rows_that_are_worked_on_at_once_and_do_not_fit_the_cache_are_read_from_memory_again() -> (
    None
):
    device = target_device("H100-SXM")
    # 264 rows of 1.6 MB at once against 43 MB: maximum, sum and result each read from memory, as
    # against once for rows of 4 kB: 4 against 2 passes.
    short = estimated(aten("_softmax", spec(1_600_000, 1000), 1, False), device)
    long = estimated(aten("_softmax", spec(4000, 400_000), 1, False), device)
    assert long.time_s / short.time_s == pytest.approx(2.0, rel=0.05)


def test_a_norm_over_few_long_rows_waits_for_its_trips_to_memory() -> None:
    device = target_device("H100-SXM")
    channels = spec(64, 256, 256)
    rows = aten(
        "native_layer_norm", spec(16, 64, 256, 256), (64, 256, 256), channels, channels, 1e-5
    )
    # 16.8 MB a row in pieces of 4096 bytes, read twice: 8192 trips of 0.7 us.
    assert estimated(rows, device).time_s == pytest.approx(8192 * 0.7e-6, rel=0.01)
    # A group of 8 x 512 x 512 elements in 512 threads is 4096 trips; 896 groups are two rounds.
    groups = aten(
        "native_group_norm",
        spec(112, 64, 512, 512),
        spec(64),
        spec(64),
        112,
        64,
        512 * 512,
        8,
        1e-5,
    )
    assert estimated(groups, device).time_s > 2 * 4096 * 0.7e-6
