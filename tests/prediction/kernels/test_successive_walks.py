"""Ops that PyTorch runs as several kernels, with temporary tensors between them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gobrrr.prediction.kernels.kernel_model import KernelEstimate, estimate_op
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work import work_of
from prediction.kernels.toy_device import IDEAL, aten, spec, toy_device

# 64 MB a tensor, of which the cache of 8 MB keeps 4 between two kernels.
X = spec(4000, 4000)
SIZE, KEPT = 64e6, 4e6
DEVICE = "cuda:0"


def _estimate(call: OpCall) -> KernelEstimate:
    work = work_of(call)
    assert work is not None
    found = estimate_op(
        call, work, toy_device(), coefficients=IDEAL, cold_bytes=float(work.bytes_moved or 0)
    )
    assert found is not None
    return found


def test_a_log_sum_exp_writes_and_reads_its_exponents() -> None:
    found = _estimate(aten("logsumexp", X, (1,), outputs=(spec(4000),)))
    # amax reads x; the difference reads x and writes; exp_ reads and writes; sum reads: 6 tensors.
    # Of x's second reading, of what is written twice and read twice, the cache keeps 4 MB each.
    # And abs, ==, masked_fill_, log_, add_ over 4000 results.
    assert found.kernels == 4 + 5
    assert found.traffic_s == pytest.approx((6 * SIZE - 5 * KEPT) / 1e12, rel=0.03)
    # The least work stays one reading.
    assert found.roof.memory_s == pytest.approx(SIZE / 1e12, rel=1e-3)


def test_a_log_sum_exp_along_columns_reduces_slower() -> None:
    rows, columns = (
        _estimate(aten("logsumexp", X, (dim,), outputs=(spec(4000),))).traffic_s for dim in (1, 0)
    )
    # Two of the six tensors are read by reductions, at 0.85 of the bandwidth.
    assert columns - rows == pytest.approx((2 * SIZE - KEPT) / 1e12 * (1 / 0.85 - 1), rel=0.03)


def test_a_filled_copy_is_cloned_first() -> None:
    mask = spec(4000, 4000, dtype="bool")
    found = _estimate(aten("masked_fill", X, mask, 0.0, outputs=(X,)))
    # The clone reads and writes; the fill reads it and 16 MB of mask, and writes: 4.25 tensors.
    assert found.kernels == 2
    assert found.traffic_s == pytest.approx((4.25 * SIZE - 2 * KEPT) / 1e12, rel=0.03)
    # In place there is nothing to clone.
    found = _estimate(aten("masked_fill_", X, mask, 0.0))
    assert found.kernels == 1
    assert found.traffic_s == pytest.approx(2.25 * SIZE / 1e12, rel=0.03)


def test_padding_writes_its_result_twice() -> None:
    found = _estimate(aten("constant_pad_nd", X, (0, 4000), 0.0, outputs=(spec(4000, 8000),)))
    # 128 MB filled; 64 MB read, and written into a part of it.
    assert found.kernels == 2
    assert found.traffic_s == pytest.approx((2 + 1 + 1) * SIZE / 1e12, rel=1e-6)


@pytest.mark.parametrize(("device", "tensors"), [("cuda:0", 2), ("cpu", 3), ("", 3)])
def test_the_buffer_of_a_log_sigmoid_is_the_processors(device: str, tensors: int) -> None:
    x = TensorSpec((1000,), "float32", None, None, device)
    work = work_of(OpCall("aten::log_sigmoid_forward", (x,), (x, x), "default"))
    assert work is not None
    assert work.bytes_moved == tensors * 4000
    # The gradient reads it there alone: of the result, the input, and the buffer; and writes one.
    backward = OpCall("aten::log_sigmoid_backward", (x, x, x), (x,), "default")
    work = work_of(backward)
    assert work is not None
    assert work.bytes_moved == (tensors + 1) * 4000


def test_what_is_counted_is_compared_first() -> None:
    found = _estimate(aten("count_nonzero", X, (1,), outputs=(spec(4000, dtype="int64"),)))
    # 64 MB read; 16 MB of truth values written and read, of which the cache keeps 4.
    assert found.kernels == 2
    assert found.traffic_s == pytest.approx((SIZE + 2 * (16e6 - KEPT)) / 1e12, rel=0.03)


def test_a_ctc_loss_waits_for_each_time_step() -> None:
    log_probs, targets = spec(500, 8, 100), spec(8, 20, dtype="int64")
    lengths = (500,) * 8
    out = (spec(8), spec(8, 500, 41))
    call = aten("_ctc_loss", log_probs, targets, lengths, (20,) * 8, outputs=out)
    work = work_of(call)
    assert work is not None
    slow = replace(IDEAL, trip_s=1e-6)
    found = estimate_op(call, work, toy_device(), coefficients=slow, cold_bytes=0.0)
    assert found is not None
    # 500 steps of a microsecond, and the microsecond of an empty kernel.
    assert found.time_s == pytest.approx(501e-6, rel=1e-6)


@pytest.mark.parametrize(
    ("shape", "dims", "passes"),
    [((4000, 4000), (1,), 1), ((4000, 4000), (0, 1), 2), ((200, 200, 400), (0, 1, 2), 3),
     ((1 << 24,), (0,), 2)],
)  # fmt: skip
def test_a_transform_passes_over_memory_for_each_dimension(
    shape: tuple[int, ...], dims: tuple[int, ...], passes: int
) -> None:
    x = spec(*shape, dtype="complex64")
    found = _estimate(aten("_fft_c2c", x, dims, 0, True, outputs=(x,)))
    size = 8.0 * x.numel
    assert found.kernels == passes
    # The first reading and the last writing are of memory, what lies between but for half a cache.
    expected = (2 * passes * size - 2 * (passes - 1) * KEPT) / 1e12
    assert found.traffic_s == pytest.approx(expected, rel=0.03)


def test_a_prime_length_is_transformed_as_a_convolution_of_twice_as_many_points() -> None:
    def transformed(length: int) -> KernelEstimate:
        x = spec(1024, length, dtype="complex64")
        return _estimate(aten("_fft_c2c", x, (1,), 0, True, outputs=(x,)))

    power, prime = transformed(4096), transformed(4093)
    assert (power.kernels, prime.kernels) == (1, 2)
    # Of 8192 points, written by one kernel and read by the next.
    assert prime.time_s > 2 * power.time_s
    # Small primes have kernels of their own.
    assert transformed(127 * 32).kernels == 1
