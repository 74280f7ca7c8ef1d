"""Norms, softmax, reductions, losses, pooling, recurrence, transforms, solvers, random numbers."""

from __future__ import annotations

import pytest

from gobrrr.timeline.ops import OpCall
from gobrrr.work import work_of

from .calls import moved, tensor, work


def test_softmax_reads_once_and_writes_once() -> None:
    found = work("_softmax", tensor(4, 8), -1, False)
    assert moved(found) == (128, 128, 256)
    # 32 elements: maximum, subtraction, exp (8), sum, product; 4 rows: a division
    assert (found.vector_flops, found.special) == (32 * 12 + 4 * 4, 32)
    assert found.op_class == "normalisation"
    # the logarithm of each row's sum, 8 and a subtraction
    found = work("_log_softmax", tensor(4, 8), -1, False)
    assert (found.vector_flops, found.special) == (32 * 12 + 4 * 9, 36)
    back = work("_softmax_backward_data", tensor(4, 8), tensor(4, 8), -1, "float32")
    assert (moved(back), back.vector_flops) == ((256, 128, 384), 128)


def test_layer_norm_keeps_two_numbers_a_row() -> None:
    found = work("native_layer_norm", tensor(4, 8), (8,), tensor(8), tensor(8), 1e-5)
    assert moved(found) == (128 + 64, 128 + 32, 352)
    # per element 5 and 2 of the affine part; per row 4 and a reciprocal root (8)
    assert (found.vector_flops, found.special) == (32 * 7 + 4 * 12, 0)
    mixed = work("native_layer_norm", tensor(4, 8, dtype="bfloat16"), (8,), None, None, 1e-5)
    assert (mixed.bytes_written, mixed.compute_dtype) == (64 + 32, "float32")


def test_layer_norm_backward_by_its_mask() -> None:
    x, row, w = tensor(4, 8), tensor(4, 1), tensor(8)
    args = (x, x, (8,), row, row, w, w)
    found = work("native_layer_norm_backward", *args, (True, True, True))
    assert (moved(found)[:2], found.vector_flops) == ((256 + 32 + 32, 128 + 64), 32 * 13)
    only = work("native_layer_norm_backward", *args, (True, False, False))
    assert (only.bytes_written, only.vector_flops) == (128, 320)


def test_batch_norm_in_training_and_evaluation() -> None:
    x, c = tensor(2, 3, 4, 4), tensor(3)
    train = work("native_batch_norm", x, c, c, c, c, True, 0.1, 1e-5)
    # running mean and variance read and written; saved mean and rstd written
    assert moved(train)[:2] == (384 + 24 + 24, 384 + 24 + 24)
    assert train.vector_flops == 96 * 6 + 3 * 12
    evaluate = work("native_batch_norm", x, c, c, c, c, False, 0.1, 1e-5)
    assert moved(evaluate)[:2] == (384 + 48, 384)
    assert evaluate.vector_flops == 96 * 2 + 3 * 12
    assert work("cudnn_batch_norm", x, c, c, c, c, True, 0.1, 1e-5).bytes_read == train.bytes_read


def test_group_norm() -> None:
    found = work("native_group_norm", tensor(2, 4, 3, 3), tensor(4), tensor(4), 2, 4, 9, 2, 1e-5)
    # 72 elements, 2 * 2 groups
    assert moved(found)[:2] == (288 + 32, 288 + 32)
    # per element 4 for the statistics, 2 for scale and shift; per group 4 and a root (8)
    assert found.vector_flops == 72 * 6 + 4 * 12


def test_rms_norm() -> None:
    found = work("_fused_rms_norm", tensor(4, 8), (8,), tensor(8), None)
    assert (moved(found)[:2], found.vector_flops) == ((160, 144), 32 * 4 + 4 * 10)


def test_reductions_by_dimension() -> None:
    assert moved(work("sum", tensor(4, 8), None)) == (128, 4, 132)
    assert work("sum", tensor(4, 8), (0,), False, None).bytes_written == 32
    assert work("sum", tensor(4, 8), (-1,), True, None).bytes_written == 16
    assert work("sum", tensor(4, 8), None).vector_flops == 32
    # 32 additions and 4 divisions of weight 4
    assert work("mean", tensor(4, 8), (1,), False, None).vector_flops == 48
    assert work("argmax", tensor(4, 8), 1, False).bytes_written == 32
    assert work("sum", tensor(4, 8, dtype="int32"), None).bytes_written == 8
    assert work("sum", tensor(4, 8, dtype="bool"), None).flops == 0
    # A float16 sum accumulates in float32.
    assert work("sum", tensor(8, dtype="float16"), None).compute_dtype == "float32"


def test_a_scan_keeps_the_shape() -> None:
    found = work("cumsum", tensor(4, 8), 1, None)
    assert (moved(found), found.vector_flops) == ((128, 128, 256), 32)


def test_nll_reads_one_number_per_target() -> None:
    x, target = tensor(6, 100), tensor(6, dtype="int64")
    found = work("nll_loss_forward", x, target, None, 1, -100)
    # 6 log-probabilities, 6 indices; a loss and the total weight
    assert moved(found) == (24 + 48, 8, 80)
    back = work("nll_loss_backward", tensor(), x, target, None, 1, -100, tensor())
    assert moved(back)[:2] == (4 + 48 + 4, 2400)


def test_mse_by_its_reduction() -> None:
    mean = work("mse_loss", tensor(10), tensor(10), 1)
    assert (moved(mean), mean.vector_flops) == ((80, 4, 84), 30)
    assert moved(work("mse_loss", tensor(10), tensor(10), 0)) == (80, 40, 120)


def test_pooling() -> None:
    # (6 + 2 - 3) // 2 + 1 = 3
    found = work(
        "max_pool2d_with_indices", tensor(1, 2, 6, 6), (3, 3), (2, 2), (1, 1), (1, 1), False
    )
    assert moved(found)[:2] == (288, 18 * 12)
    assert found.vector_flops == 18 * 9
    # Rounding up: ceil((6 - 3) / 2) + 1 = 3, and the last window starts inside.
    up = work("avg_pool2d", tensor(1, 2, 6, 6), (3, 3), (2, 2), (0, 0), True, True, None)
    assert (up.bytes_written, up.vector_flops) == (72, 18 * 10)
    back = work("max_pool2d_with_indices_backward", tensor(1, 2, 3, 3), tensor(1, 2, 6, 6), (3, 3),
                (2, 2), (1, 1), (1, 1), False, tensor(1, 2, 3, 3, dtype="int64"))  # fmt: skip
    assert moved(back)[:2] == (72 + 144, 288)
    assert work("_adaptive_avg_pool2d", tensor(1, 2, 6, 6), (1, 1)).vector_flops == 72 + 2


def test_upsampling() -> None:
    nearest = work("upsample_nearest2d", tensor(1, 2, 3, 3), (6, 6), None, None)
    assert (moved(nearest), nearest.flops) == ((72, 288, 360), 0)
    assert work("upsample_bilinear2d", tensor(1, 2, 3, 3), (6, 6), False).vector_flops == 72 * 8


def test_lstm_multiplies_every_matrix_once_a_step() -> None:
    # steps 5, batch 2, input 3, hidden 4: 2 * 10 * (16 * 3 + 16 * 4) = 2240
    x, h = tensor(5, 2, 3), tensor(1, 2, 4)
    weights = (tensor(16, 3), tensor(16, 4), tensor(16), tensor(16))
    found = work("lstm", x, (h, h), weights, True, 1, 0.0, False, False, False)
    assert found.matrix_flops == 2240
    assert moved(found)[:2] == ((30 + 16 + 48 + 64 + 32) * 4, (40 + 16) * 4)
    # 10 steps of 4 hidden: 3 sigmoids of 14, 2 tanh of 8, 4 + 8 = 70
    assert found.vector_flops == 10 * 4 * 70
    onednn = work("mkldnn_rnn_layer", x, *weights, tensor(2, 4), tensor(2, 4), False, (), 2, 4, 1,
                  True, False, False, False)  # fmt: skip
    assert onednn.matrix_flops == 2240
    cudnn = work("_cudnn_rnn", x, weights, 4, None, h, h, 2, 4, 0, 1, False, 0.0, True, False, (),
                 None)  # fmt: skip
    assert (cudnn.matrix_flops, cudnn.vector_flops) == (2240, 2800)


def test_gru_cell() -> None:
    found = work("gru_cell", tensor(2, 3), tensor(2, 4), tensor(12, 3), tensor(12, 4))
    assert found.matrix_flops == 2 * 2 * (36 + 48)
    # 2 sigmoids of 14, a tanh of 8, 4 and 6 sums = 46 for each of 2 * 4
    assert found.vector_flops == 8 * 46


def test_fourier_transform() -> None:
    # 5 n log2 n: 3 rows of 5 * 8 * 3
    found = work("_fft_c2c", tensor(3, 8, dtype="complex64"), (1,), 0, True)
    assert (found.vector_flops, found.bytes_moved) == (360, 2 * 192)
    real = work("_fft_r2c", tensor(3, 8), (1,), 0, True)
    # 8 real points give 5 complex ones
    assert (real.vector_flops, moved(real)[:2]) == (180, (96, 120))


def test_factorisations() -> None:
    assert work("linalg_cholesky_ex", tensor(2, 6, 6)).flops == 2 * 216 / 3
    assert work("linalg_inv_ex", tensor(6, 6)).flops == 2 * 216
    assert work("_linalg_solve_ex", tensor(6, 6), tensor(6, 2)).flops == pytest.approx(144 + 144)


def test_random_numbers_are_written() -> None:
    found = work("bernoulli_", tensor(10), 0.5, None)
    assert moved(found) == (0, 40, 40)
    drop = work("native_dropout", tensor(10), 0.1, True)
    assert moved(drop) == (40, 50, 90)
    assert work("randn", (4, 8), "float32").bytes_written == 128
    assert (
        work(
            "randint_like", tensor(10, dtype="int64"), 5, outputs=(tensor(10, dtype="int64"),)
        ).flops
        == 0
    )


def test_arguments_that_a_trace_left_out_are_unknown() -> None:
    assert work_of(OpCall("aten::mm", ())) is None
    assert work_of(OpCall("aten::native_layer_norm_backward", (tensor(4, 8), tensor(4, 8)))) is None
    assert work_of(OpCall("aten::topk", (tensor(4), None, None))) is None
