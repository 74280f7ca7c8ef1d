"""FLOPs and bytes of operators that few networks call, worked out by hand.

Of factorisations by LAPACK Working Note 41 and Golub and Van Loan
(``work.formulas.linear_algebra``); of the rest by counting: a division and a root 4, an exponential
or a logarithm 8 (``work.weights``).
"""

from __future__ import annotations

import pytest

from gobrrr.timeline.ops import Arg

from .calls import moved, tensor, work

A, TALL, RIGHT = tensor(4, 4), tensor(6, 4), tensor(4, 3)
PIVOTS = tensor(4, dtype="int32")


@pytest.mark.parametrize(
    ("name", "args", "flops"),
    [
        ("linalg_cholesky_ex", (A,), 64 / 3),
        ("linalg_lu_factor_ex", (A,), 2 * 64 / 3),
        ("linalg_lu", (TALL,), 6 * 16 - 64 / 3),
        ("linalg_inv_ex", (A,), 2 * 64),
        ("cholesky_inverse", (A,), 2 * 64 / 3),
        ("_linalg_solve_ex", (A, RIGHT), 2 * 64 / 3 + 2 * 16 * 3),
        ("_linalg_solve_ex", (A, tensor(4)), 2 * 64 / 3 + 2 * 16),
        ("linalg_solve_triangular", (A, RIGHT), 16 * 3),
        ("triangular_solve", (RIGHT, A), 16 * 3),
        ("linalg_lu_solve", (A, PIVOTS, RIGHT), 2 * 16 * 3),
        ("cholesky_solve", (RIGHT, A), 2 * 16 * 3),
        ("geqrf", (TALL,), 2 * 6 * 16 - 2 * 64 / 3),
        ("linalg_qr", (TALL, "reduced"), 2 * (2 * 6 * 16 - 2 * 64 / 3)),
        ("linalg_qr", (TALL, "r"), 2 * 6 * 16 - 2 * 64 / 3),
        ("linalg_eigh", (A, "L"), 9 * 64),
        ("_linalg_eigh", (A, "L", False), 4 * 64 / 3),
        ("linalg_eig", (A,), 25 * 64),
        ("_linalg_eigvals", (A,), 10 * 64),
        ("_linalg_svd", (TALL, False, True), 14 * 6 * 16 + 8 * 64),
        ("_linalg_svd", (TALL, False, False), 4 * 6 * 16 - 4 * 64 / 3),
        # QR, Q^T B, and a triangular solve.
        (
            "linalg_lstsq",
            (TALL, tensor(6, 3)),
            2 * 6 * 16 - 2 * 64 / 3 + (4 * 6 * 4 - 2 * 16) * 3 + 16 * 3,
        ),
        # A thin SVD, and the product of (4, 4) by (4, 6).
        ("linalg_pinv", (TALL, 1e-5, False), 14 * 6 * 16 + 8 * 64 + 2 * 4 * 4 * 6),
        ("linalg_pinv", (A, 1e-5, True), 9 * 64 + 2 * 64),
        ("linalg_matrix_exp", (A,), 5 * 2 * 64),
    ],
)
def test_a_factorisation(name: str, args: tuple[Arg, ...], flops: float) -> None:
    found = work(name, *args)
    assert found.matrix_flops == pytest.approx(flops)
    assert found.vector_flops == 0


def test_factorisations_of_a_batch_and_of_complex_numbers() -> None:
    assert work("linalg_inv_ex", tensor(5, 4, 4)).matrix_flops == 5 * 128
    # A complex product is four real ones.
    found = work("linalg_inv_ex", tensor(4, 4, dtype="complex64"))
    assert (found.matrix_flops, found.compute_dtype) == (4 * 128, "float32")
    # Half of a triangular matrix is read: 10 of 16.
    assert moved(work("linalg_solve_triangular", A, RIGHT))[0] == (10 + 12) * 4


def test_distances() -> None:
    x, y = tensor(2, 3, 4), tensor(2, 5, 4)
    # 30 pairs. By a product over 4 and 2 columns more; a comparison and a root for each pair, and
    # squares and sums for each row.
    found = work("_euclidean_dist", x, y)
    assert (found.matrix_flops, found.vector_flops) == (2 * 30 * 6, 30 * 5 + 2 * (24 + 40))
    assert moved(found)[:2] == ((24 + 40) * 4, 30 * 4)
    # A difference, a square, a sum over 4; a root.
    direct = work("_cdist_forward", x, y, 2.0, None)
    assert direct.vector_flops == 30 * (3 * 4 + 4)
    assert moved(direct)[:2] == ((24 + 40) * 4, 30 * 4)
    back = work("_cdist_backward", tensor(2, 3, 5), x, y, 2.0, tensor(2, 3, 5))
    assert back.vector_flops == 30 * 4 * 4
    assert moved(back)[:2] == ((30 + 24 + 40 + 30) * 4, 24 * 4)
    # 5 rows: 10 pairs.
    rows = work("_pdist_forward", tensor(5, 4), 2.0)
    assert (rows.vector_flops, moved(rows)[:2]) == (10 * (3 * 4 + 4), (20 * 4, 10 * 4))
    one = work("dist", tensor(20), tensor(20), 2)
    assert (one.vector_flops, moved(one)[:2]) == (3 * 20 + 4, (160, 4))
    assert work("renorm", tensor(5, 4), 2, 0, 1.0).vector_flops == 3 * 20
    assert work("linalg_cross", tensor(5, 3), tensor(5, 3), -1).vector_flops == 3 * 15


def test_gates() -> None:
    # Half of 24 by the sigmoid of the other half: a negation, an exponential, a sum, a division.
    found = work("glu", tensor(4, 6), -1)
    assert (found.vector_flops, found.special) == (12 * (1 + 8 + 1 + 4 + 1), 12)
    assert moved(found)[:2] == (24 * 4, 12 * 4)
    assert work("glu", tensor(4, 6), 0).bytes_written == 12 * 4
    back = work("glu_backward", tensor(4, 3), tensor(4, 6), -1)
    assert moved(back)[:2] == ((12 + 24) * 4, 24 * 4)
    prelu = work("_prelu_kernel_backward", tensor(8), tensor(8), tensor(8))
    assert moved(prelu)[:2] == (3 * 32, 2 * 32)


def test_complex_numbers_from_two_real_ones() -> None:
    made = work("complex", tensor(8), tensor(8))
    assert (made.flops, moved(made)[:2]) == (0, (64, 64))
    polar = work("polar", tensor(8), tensor(8))
    # A sine, a cosine, two products.
    assert (polar.vector_flops, polar.special) == (8 * (8 + 8 + 2), 16)
    assert work("complex", *[tensor(8, dtype="float64")] * 2).bytes_written == 128


def test_weight_norm() -> None:
    v, g = tensor(3, 4), tensor(3, 1)
    found = work("_weight_norm_interface", v, g, 0)
    # A square, a sum and a product for each; a root and a division for each of 3 rows.
    assert found.vector_flops == 3 * 12 + 8 * 3
    assert moved(found)[:2] == ((12 + 3) * 4, (12 + 3) * 4)
    back = work("_weight_norm_interface_backward", v, v, g, g, 0)
    assert moved(back)[:2] == ((12 + 12 + 3 + 3) * 4, (12 + 3) * 4)


def test_quantisation() -> None:
    found = work("quantize_per_tensor", tensor(8), 0.1, 0, 12)
    # Scale, round, shift, and two sides of a clamp.
    assert (found.vector_flops, moved(found)[:2]) == (8 * 5, (32, 8))
    back = work("dequantize", tensor(8, dtype="qint8"))
    assert moved(back)[:2] == (8, 32)
    fake = work("fake_quantize_per_tensor_affine_cachemask", tensor(8), 0.1, 0, 0, 255)
    # There and back; a mask of a byte each.
    assert (fake.vector_flops, moved(fake)[:2]) == (8 * 7, (32, 32 + 8))


def test_gradients_of_losses() -> None:
    x = tensor(10)
    # A difference, a factor, the gradient.
    found = work("mse_loss_backward", tensor(), x, x, 1)
    assert (found.vector_flops, moved(found)[:2]) == (30, (4 + 80, 40))
    # Of nine classes: a difference, the margin, a comparison, a sum or a product.
    scores, target = tensor(6, 9), tensor(6, dtype="int64")
    margin = work("multi_margin_loss", scores, target, 1, 1.0, None, 1)
    assert (margin.vector_flops, moved(margin)[:2]) == (4 * 54, (54 * 4 + 48, 4))
    assert work("multi_margin_loss", scores, target, 1, 1.0, None, 0).bytes_written == 24
    back = work("multi_margin_loss_backward", tensor(), scores, target, 1, 1.0, None, 1)
    assert moved(back)[:2] == (4 + 54 * 4 + 48, 54 * 4)


def test_ctc_adds_three_terms_for_each_state() -> None:
    # 7 steps, 2 samples, 5 classes; labels of 3, so 7 states.
    probabilities, states = tensor(7, 2, 5), tensor(2, 7, 7)
    found = work("_ctc_loss", probabilities, tensor(2, 3, dtype="int64"), (7, 7), (3, 3), 0, False,
                 outputs=(tensor(2), states))  # fmt: skip
    # Three exponentials and a logarithm; 6 more.
    assert (found.vector_flops, found.special) == (98 * (4 * 8 + 6), 4 * 98)
    assert moved(found)[:2] == (70 * 4 + 48, (2 + 98) * 4)


def test_parts_are_read_no_further_than_they_are_written() -> None:
    x = tensor(8, 10)
    found = work("slice_copy", x, 0, 0, 3, 1, outputs=(tensor(3, 10),))
    assert moved(found)[:2] == (120, 120)
    # Every element twice: read once.
    twice = work("repeat_interleave", x, 2, outputs=(tensor(160),))
    assert moved(twice)[:2] == (320, 640)
    # Windows of 2 x 2 over 5 x 6 in steps of 1: 4 x 5 places.
    columns = work("im2col", tensor(1, 3, 5, 6), (2, 2), (1, 1), (0, 0), (1, 1))
    assert moved(columns)[:2] == (90 * 4, 3 * 4 * 20 * 4)
    # With a border of 1, every second: (5 + 2 - 2) // 2 + 1 = 3 by (6 + 2 - 2) // 2 + 1 = 4.
    columns = work("im2col", tensor(1, 3, 5, 6), (2, 2), (1, 1), (1, 1), (2, 2))
    assert columns.bytes_written == 3 * 4 * 12 * 4
    # Dilated by 2 a window is 3 wide: 3 x 4 places.
    columns = work("im2col", tensor(1, 3, 5, 6), (2, 2), (2, 2), (0, 0), (1, 1))
    assert columns.bytes_written == 3 * 4 * 12 * 4
    diagonal = work("diag_embed", tensor(2, 3), -1, -2, -1)
    assert moved(diagonal)[:2] == (24, 2 * 4 * 4 * 4)


def test_what_is_replaced_is_not_read() -> None:
    found = work("slice_scatter", tensor(8, 10), tensor(3, 10), 0, 0, 3, 1)
    assert moved(found)[:2] == ((50 + 30) * 4, 320)


def test_gradients_of_parts_and_of_borders() -> None:
    assert moved(work("slice_backward", tensor(3, 10), (8, 10), 0, 0, 3, 1))[:2] == (120, 320)
    border = work("reflection_pad2d_backward", tensor(1, 7, 8), tensor(1, 5, 6), (1, 1, 1, 1))
    # 56 into 30: 26 are added to others.
    assert (border.vector_flops, moved(border)[:2]) == (26, (56 * 4, 30 * 4))


def test_writing_by_index() -> None:
    x, rows = tensor(10, 4), tensor(3, dtype="int64")
    source = tensor(3, 4)
    # In place: the source, the index, and the elements named are read, summed, written.
    added = work("index_add_", x, 0, rows, source, 1)
    assert (added.vector_flops, moved(added)[:2]) == (12, (48 + 24 + 48, 48))
    copied = work("index_copy_", x, 0, rows, source)
    assert (copied.flops, moved(copied)[:2]) == (0, (48 + 24, 48))
    filled = work("index_fill_", x, 0, rows, 1.0)
    assert moved(filled)[:2] == (24, 48)
    # Out of place the rest is copied as well.
    whole = work("index_copy", x, 0, rows, source)
    assert moved(whole)[:2] == (160 + 48 + 24, 160)
    index = tensor(3, 4, dtype="int64")
    put = work("scatter_", x, 0, index, source)
    assert (put.flops, moved(put)[:2]) == (0, (48 + 96, 48))
    assert moved(work("scatter_", x, 0, index, 1.0))[:2] == (96, 48)
    summed = work("scatter_", x, 0, index, source, "add", overload="reduce")
    assert (summed.vector_flops, summed.bytes_read) == (12, 48 + 96 + 48)


def test_gradients_of_embedding_bags() -> None:
    indices, offsets = tensor(6, dtype="int64"), tensor(2, dtype="int64")
    dots = work("_embedding_bag_per_sample_weights_backward", tensor(2, 4), tensor(10, 4), indices,
                offsets, tensor(6, dtype="int64"), 0, -1)  # fmt: skip
    # A product of rows of 4 for each of 6.
    assert (dots.vector_flops, dots.bytes_written) == (2 * 6 * 4, 24)
    assert dots.bytes_read == (8 + 24) * 4 + 48


def test_attention_with_heads_after_positions_backward() -> None:
    # 2 sequences of 5 queries and 5 keys, 3 heads of 4.
    q = tensor(2, 5, 3, 4)
    statistics = tensor(2, 3, 5)
    found = work("_flash_attention_backward", q, q, q, q, q, statistics, None, None, 5, 5, 0.0,
                 False)  # fmt: skip
    pairs = 2 * 3 * 25
    # Five products over 4: scores again, and the gradients of values, scores, keys and queries.
    assert found.matrix_flops == 5 * 2 * pairs * 4
    # Of a pair the scale twice, two differences, an exponential, a product; of a query 4 products
    # and sums with its result.
    assert (found.vector_flops, found.special) == (pairs * 13 + 2 * 30 * 4, pairs)
    assert moved(found)[:2] == ((5 * 120 + 30) * 4, 3 * 120 * 4)
    causal = work("_flash_attention_backward", q, q, q, q, q, statistics, None, None, 5, 5, 0.0,
                  True)  # fmt: skip
    assert causal.matrix_flops == 5 * 2 * (2 * 3 * 15) * 4
    # A bias of each pair is read and added.
    bias = tensor(2, 3, 5, 5)
    efficient = work("_efficient_attention_backward", q, q, q, q, bias, q, None, None, 5, 5,
                     statistics, 0.0, None, None, 0)  # fmt: skip
    assert efficient.vector_flops == pairs * 14 + 2 * 30 * 4
    assert moved(efficient)[:2] == ((5 * 120 + 30 + 150) * 4, 3 * 120 * 4)


def test_attention_of_cudnn() -> None:
    q = tensor(2, 3, 5, 4)
    found = work("_cudnn_attention_forward", q, q, q, None, None, None, 5, 5, True, 0.0, False)
    pairs = 2 * 3 * 25
    assert found.matrix_flops == 2 * 2 * pairs * 4
    # A result, and a logarithm of each query's sum.
    assert moved(found)[:2] == (3 * 120 * 4, (120 + 30) * 4)
    back = work("_cudnn_attention_backward", q, q, q, q, q, tensor(2, 3, 5), None, None, None, None,
                None, 5, 5, 0.0, False)  # fmt: skip
    assert (back.matrix_flops, back.bytes_written) == (5 * 2 * pairs * 4, 3 * 120 * 4)


def test_gradients_of_norms() -> None:
    x, c = tensor(2, 3, 4, 4), tensor(3)
    everything = (True, True, True)
    found = work("native_batch_norm_backward", x, x, c, c, c, c, c, True, 1e-5, everything)
    # Two sums with the normalised value, 4; the input's gradient less their means, 4.
    assert found.vector_flops == 96 * 8
    assert moved(found)[:2] == ((96 + 96 + 3 * 3) * 4, (96 + 3 + 3) * 4)
    fixed = work("native_batch_norm_backward", x, x, c, c, c, c, c, False, 1e-5,
                 (True, False, False))  # fmt: skip
    # Constant statistics: a factor, and the input's values are not needed.
    assert (fixed.vector_flops, fixed.bytes_written) == (96, 96 * 4)
    cudnn = work("cudnn_batch_norm_backward", x, x, c, c, c, c, c, 1e-5, None)
    assert (cudnn.vector_flops, moved(cudnn)[:2]) == (96 * 8, moved(found)[:2])
    groups = work("native_group_norm_backward", x, x, tensor(2, 3), tensor(2, 3), c, 2, 3, 16, 3,
                  everything)  # fmt: skip
    assert groups.vector_flops == 96 * 8
    assert moved(groups)[:2] == ((96 + 96 + 6 + 6 + 3) * 4, (96 + 3 + 3) * 4)
    rows = tensor(4, 8)
    rms = work("_fused_rms_norm_backward", rows, rows, (8,), tensor(4, 1), tensor(8), (True, True))
    # The normalised value; times weight, a product and a sum, 3; 3 to combine; a product and a
    # sum for the weight.
    assert rms.vector_flops == 32 * (1 + 6 + 2)
    assert moved(rms)[:2] == ((32 + 32 + 4 + 8) * 4, (32 + 8) * 4)
    soft = work("_log_softmax_backward_data", rows, rows, -1, "float32")
    assert (soft.vector_flops, soft.special) == (32 * (3 + 8), 32)


def test_the_pieces_of_a_batch_norm_of_many_ranks() -> None:
    x = tensor(2, 3, 4, 4)
    found = work("batch_norm_stats", x, 1e-5)
    # Sum; difference, square, sum.
    assert (found.vector_flops, moved(found)[:2]) == (96 * 4, (96 * 4, 6 * 4))


def test_gradients_of_pooling_and_resampling() -> None:
    small, x = tensor(1, 2, 3, 3), tensor(1, 2, 6, 6)
    found = work("avg_pool2d_backward", small, x, (2, 2), (2, 2), (0, 0), False, True, None)
    # A scaling of 18, four additions of each.
    assert (found.vector_flops, moved(found)[:2]) == (18 + 18 * 4, (72, 288))
    whole = work("_adaptive_avg_pool2d_backward", tensor(1, 2, 1, 1), x)
    assert (whole.vector_flops, moved(whole)[:2]) == (2 + 72, (8, 288))
    bilinear = work("upsample_bilinear2d_backward", x, (6, 6), (1, 2, 3, 3), False, None, None)
    # Four taps, a product and a sum each.
    assert (bilinear.vector_flops, moved(bilinear)[:2]) == (72 * 8, (288, 72))
    nearest = work("upsample_nearest2d_backward", x, (6, 6), (1, 2, 3, 3), None, None)
    assert (nearest.vector_flops, moved(nearest)[:2]) == (72, (288, 72))


def test_sampling_by_a_grid() -> None:
    x, grid = tensor(1, 2, 6, 6), tensor(1, 3, 4, 2)
    found = work("grid_sampler_2d", x, grid, 0, 0, False)
    # 12 points: two coordinates of 2 each, four taps by two weights; a product and a sum of each
    # tap of both channels.
    assert found.vector_flops == 12 * (2 * 2 + 4 * 2) + 12 * 2 * 4 * 2
    # Of 72 elements no more than 12 * 2 * 4 are read.
    assert moved(found)[:2] == ((72 + 24) * 4, 24 * 4)
    one = work("grid_sampler_2d", x, grid, 1, 0, False)
    assert moved(one)[:2] == ((24 + 24) * 4, 24 * 4)
    many = work("grid_sampler_2d", x, grid, 2, 0, False)
    assert many.vector_flops == 12 * (2 * 2 + 16 * 2) + 12 * 2 * 16 * 2
    # A line of (x, y, 1) by 2 rows of 3 for each of 12 points.
    affine = work("affine_grid_generator", tensor(1, 2, 3), (1, 2, 3, 4), False)
    assert (affine.vector_flops, moved(affine)[:2]) == (12 * 2 * 3 * 2, (24, 24 * 4))


def test_products_by_other_names() -> None:
    a, b = tensor(3, 4), tensor(5, 4)
    assert work("inner", a, b).matrix_flops == 2 * 15 * 4
    assert work("linalg_vecdot", a, a, -1).matrix_flops == 2 * 12
    outer = work("outer", tensor(3), tensor(5))
    assert (outer.matrix_flops, outer.vector_flops, outer.bytes_written) == (0, 15, 60)
    # (2, 3, 4) and (4, 3, 5) over the 3 and the 4.
    found = work("tensordot", tensor(2, 3, 4), tensor(4, 3, 5), (1, 2), (1, 0))
    assert (found.matrix_flops, found.bytes_written) == (2 * 2 * 5 * 12, 40)
    alike = work("cosine_similarity", tensor(5, 4), tensor(5, 4), 1, 1e-8)
    # Three sums of products.
    assert (alike.vector_flops, moved(alike)[:2]) == (6 * 20, (160, 20))
    apart = work("pairwise_distance", tensor(5, 4), tensor(5, 4), 2.0)
    assert (apart.vector_flops, apart.bytes_written) == (4 * 20, 20)


def test_a_cross_entropy_writes_no_probabilities() -> None:
    found = work("cross_entropy_loss", tensor(6, 10), tensor(6, dtype="int64"), None, 1, -100, 0.0)
    # Of each logit a maximum, a difference, an exponential, a sum; of each row a logarithm and two.
    assert (found.vector_flops, found.special) == (60 * 11 + 6 * 10, 66)
    assert moved(found)[:2] == (60 * 4 + 48, 4)
    each = work("cross_entropy_loss", tensor(6, 10), tensor(6, dtype="int64"), None, 0, -100, 0.0)
    assert each.bytes_written == 24


def test_cells_after_their_products() -> None:
    gates, state, bias = tensor(2, 16), tensor(2, 4), tensor(16)
    found = work("_thnn_fused_lstm_cell", gates, gates, state, bias, bias)
    # Three sigmoids of 14, two tanh of 8, 4, and two sums of each gate.
    assert (found.vector_flops, found.special) == (8 * (42 + 16 + 4 + 8), 8 * 5)
    assert moved(found)[:2] == ((32 + 32 + 8 + 16 + 16) * 4, (8 + 8 + 32) * 4)
    gru = work("_thnn_fused_gru_cell", tensor(2, 12), tensor(2, 12), state, None, None)
    assert (gru.vector_flops, gru.special) == (8 * (28 + 8 + 4 + 6), 8 * 3)
    assert moved(gru)[:2] == ((24 + 24 + 8) * 4, (8 + 40) * 4)
    back = work("_thnn_fused_lstm_cell_backward_impl", state, state, state, state, gates, False)
    # A tanh again, 4, and 5 of each gate.
    assert (back.vector_flops, back.special) == (8 * (8 + 4 + 20), 8)
    assert moved(back)[:2] == ((4 * 8 + 32) * 4, (32 + 8) * 4)
    last = work("_thnn_fused_gru_cell_backward", state, tensor(2, 20), False)
    assert (last.vector_flops, moved(last)[:2]) == (8 * 19, ((8 + 40) * 4, (24 + 24 + 8) * 4))


def test_a_transformer_layer_in_one_operator() -> None:
    # 2 sequences of 5 tokens, width 8, 4 heads, 16 hidden.
    src = tensor(2, 5, 8)
    parameters = [tensor(24, 8), tensor(24), tensor(8, 8), tensor(8)]
    rest = [tensor(16, 8), tensor(16), tensor(8, 16), tensor(8)]
    norms = [tensor(8)] * 4
    found = work("_transformer_encoder_layer_fwd", src, 8, 4, *parameters, True, False, 1e-5,
                 *norms, *rest, None, None)  # fmt: skip
    projections, attention, hidden = 2 * 10 * 8 * 32, 2 * 2 * 2 * 25 * 8, 2 * 2 * 10 * 8 * 16
    assert found.matrix_flops == projections + attention + hidden
    # Two norms of 7 and sums of 1; GELU of 12; 12 of each pair.
    assert found.vector_flops == 2 * 8 * 80 + 12 * 160 + 4 * 50 * 12
    assert found.special == 160 + 4 * 50
    heads = work("_native_multi_head_attention", src, src, src, 8, 4, *parameters, None, False,
                 True, None)  # fmt: skip
    assert heads.matrix_flops == projections + attention
    assert (heads.vector_flops, heads.special) == (4 * 50 * 12, 200)
    qkv = work("_transform_bias_rescale_qkv", tensor(2, 5, 24), tensor(24), 4)
    # A sum of each, a product of a third.
    assert (qkv.vector_flops, moved(qkv)[:2]) == (240 + 80, ((240 + 24) * 4, 240 * 4))
    mask = tensor(4, 8, dtype="bool")
    soft = work("_masked_softmax", tensor(4, 8), mask, -1, 2)
    assert (soft.vector_flops, soft.special) == (32 * 12 + 4 * 4, 32)
    assert moved(soft)[:2] == (128 + 32, 128)
    back = work("_masked_softmax_backward", tensor(4, 8), tensor(4, 8), mask, -1)
    assert (back.vector_flops, moved(back)[:2]) == (32 * 4, (256 + 32, 128))


def test_random_numbers_of_other_distributions() -> None:
    # A number in [0, 1) is a product and a sum; a normal one by Box-Muller, of a pair, a logarithm,
    # a root, a sine, a cosine and two products each besides.
    normal = 2 + (3 * 8 + 4) / 2 + 2
    found = work("normal", tensor(8), tensor(8))
    assert (found.vector_flops, found.special) == (8 * (normal + 2), 8 * 1.5)
    assert moved(found)[:2] == (64, 32)
    coin = work("bernoulli", tensor(8))
    assert (coin.vector_flops, moved(coin)[:2]) == (8 * 3, (32, 32))
    assert work("exponential_", tensor(8), 1.0).vector_flops == 8 * (2 + 8 + 2)
    assert work("log_normal_", tensor(8), 0.0, 1.0).special == 8 * 2.5
    assert work("random_", tensor(8)).flops == 0
    drawn = work("multinomial", tensor(3, 10), 4, True)
    assert (drawn.vector_flops, moved(drawn)[:2]) == (60, (120, 96))
    gamma = work("_standard_gamma", tensor(8))
    assert gamma.vector_flops == 8 * (normal + 2 + 16 + 10)
    # Divided by the sum of their row.
    assert work("_sample_dirichlet", tensor(8)).vector_flops == gamma.vector_flops + 8 * 5
    kept = work("dropout", tensor(8), 0.5, True)
    # A comparison and two products besides the number; a mask of bytes.
    assert (kept.vector_flops, moved(kept)[:2]) == (40, (32, 40))
    assert work("dropout", tensor(8), 0.5, False).bytes_written == 0


def test_searching_takes_a_comparison_for_each_half() -> None:
    # Of 10 borders 4 halves.
    found = work("bucketize", tensor(100), tensor(10))
    assert (found.vector_flops, moved(found)[:2]) == (400, ((100 + 10) * 4, 800))
    few = work("searchsorted", tensor(1000), tensor(2))
    # 10 halves of 1000: no more is read.
    assert (few.vector_flops, moved(few)[:2]) == (20, ((2 + 20) * 4, 16))
    member = work("isin", tensor(8, dtype="int64"), tensor(3, dtype="int64"))
    assert moved(member)[:2] == (88, 8)


@pytest.mark.parametrize(
    ("name", "args", "vector", "special", "written"),
    [
        # A difference, a square, a sum, and the mean's sum before; of a row a division, and a root.
        ("var", ((1,), 1, False), 32 * 4 + 4 * 4, 0, 16),
        ("std", ((1,), 1, True), 32 * 4 + 4 * 8, 0, 16),
        ("var_mean", ((1,), 1, False), 32 * 4 + 4 * 4, 0, 32),
        # A maximum, a difference, an exponential, a sum; of a row a logarithm and a sum.
        ("logsumexp", ((1,), False), 32 * 11 + 4 * 9, 36, 16),
        ("linalg_vector_norm", (2, None, False, None), 32 * 2 + 4, 0, 4),
        ("linalg_vector_norm", (2, (0,), False, None), 32 * 2 + 8 * 4, 0, 32),
        ("amax", ((0,), False), 32, 0, 32),
        ("amax", ((0, 1), True), 32, 0, 4),
        ("any", (0, False), 0, 0, 8),
        ("all", (), 0, 0, 1),
        ("count_nonzero", (None,), 32, 0, 8),
        # Values, and where they stand.
        ("max", (1, False), 32, 0, 4 * (4 + 8)),
        ("max", (), 32, 0, 4),
        ("median", (1, False), 32, 0, 4 * (4 + 8)),
        ("median", (), 32, 0, 4),
        ("aminmax", (1, False), 64, 0, 4 * (4 + 4)),
        ("cummax", (1,), 32, 0, 32 * (4 + 8)),
        # Of each an exponential, a logarithm and four.
        ("logcumsumexp", (1,), 32 * 20, 64, 128),
    ],
)
def test_a_reduction(
    name: str, args: tuple[Arg, ...], vector: float, special: float, written: int
) -> None:
    found = work(name, tensor(4, 8), *args)
    assert (found.vector_flops, found.special) == (vector, special)
    assert moved(found)[:2] == (128, written)
