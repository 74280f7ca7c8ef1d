"""FLOPs and bytes of operators that few networks call, worked out by hand.

Of factorisations by LAPACK Working Note 41 and Golub and Van Loan (``work.linear_algebra``); of the
rest by counting: a division and a root 4, an exponential or a logarithm 8 (``work.weights``).
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
