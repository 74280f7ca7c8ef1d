from __future__ import annotations

import pytest

from gobrrr.timeline.ops import OpCall
from gobrrr.work import is_composite, work_of

from .calls import moved, tensor, work


def test_mm_counts_two_flops_per_multiply_add_and_each_matrix_once() -> None:
    found = work("mm", tensor(2, 3), tensor(3, 4))
    assert found.matrix_flops == 48  # 2 * 2 * 4 * 3
    assert found.vector_flops == 0
    # read (6 + 12) * 4 = 72, written 8 * 4 = 32
    assert moved(found) == (72, 32, 104)
    assert found.fresh_bytes == 32
    assert (found.compute_dtype, found.op_class) == ("float32", "contraction")
    assert found.intensity == 48 / 104


def test_mm_of_bfloat16_computes_in_bfloat16() -> None:
    found = work("mm", tensor(2, 3, dtype="bfloat16"), tensor(3, 4, dtype="bfloat16"))
    assert (found.compute_dtype, found.bytes_read) == ("bfloat16", 36)


def test_mm_of_unknown_dtype_has_flops_but_no_bytes() -> None:
    found = work("mm", tensor(2, 3, dtype=""), tensor(3, 4, dtype=""))
    assert found.matrix_flops == 48
    assert moved(found) == (None, None, None)


def test_mm_into_a_given_tensor_allocates_nothing() -> None:
    found = work("mm", tensor(2, 3), tensor(3, 4), tensor(2, 4))
    assert moved(found) == (72, 32, 104)
    assert found.fresh_bytes == 0


def test_complex_multiply_adds_are_eight_real_operations() -> None:
    found = work("mm", tensor(2, 3, dtype="complex64"), tensor(3, 4, dtype="complex64"))
    assert found.matrix_flops == 192  # 8 * 2 * 4 * 3
    assert (found.compute_dtype, found.bytes_read) == ("float32", 144)


def test_addmm_reads_its_bias_once() -> None:
    found = work("addmm", tensor(4), tensor(2, 3), tensor(3, 4), 1, 1)
    assert found.matrix_flops == 48
    assert moved(found) == (72 + 16, 32, 120)
    # An expanded bias is the same 4 numbers in memory.
    expanded = work("addmm", tensor(2, 4, strides=(0, 1)), tensor(2, 3), tensor(3, 4), 1, 1)
    assert moved(expanded) == moved(found)


def test_addmm_with_beta_zero_does_not_read_its_bias() -> None:
    assert work("addmm", tensor(4), tensor(2, 3), tensor(3, 4), 0, 1).bytes_read == 72


def test_bmm_and_baddbmm() -> None:
    found = work("bmm", tensor(5, 2, 3), tensor(5, 3, 4))
    assert found.matrix_flops == 240  # 5 * 48
    assert moved(found) == (5 * 72, 5 * 32, 5 * 104)
    added = work("baddbmm", tensor(5, 2, 4), tensor(5, 2, 3), tensor(5, 3, 4), 1, 1)
    assert moved(added) == (5 * (72 + 32), 5 * 32, 5 * 136)


def test_addbmm_sums_over_the_batch_into_one_matrix() -> None:
    found = work("addbmm", tensor(2, 4), tensor(5, 2, 3), tensor(5, 3, 4), 1, 1)
    assert found.matrix_flops == 240
    assert moved(found) == (32 + 5 * 72, 32, 32 + 5 * 72 + 32)


def test_products_with_vectors_count() -> None:
    assert work("mv", tensor(7, 3), tensor(3)).matrix_flops == 42  # 2 * 7 * 3
    assert work("dot", tensor(9), tensor(9)).matrix_flops == 18
    found = work("addmv", tensor(7), tensor(7, 3), tensor(3), 1, 1)
    assert (found.matrix_flops, found.bytes_read) == (42, (7 + 21 + 3) * 4)


def test_int_mm_is_work_of_the_matrix_unit_in_int8() -> None:
    found = work("_int_mm", tensor(32, 16, dtype="int8"), tensor(16, 8, dtype="int8"))
    assert (found.matrix_flops, found.compute_dtype) == (8192, "int8")  # 2 * 32 * 8 * 16
    # int8 read, int32 written: 512 + 128, 256 * 4
    assert moved(found) == (640, 1024, 1664)


def test_linear_of_any_rank_is_composite() -> None:
    found = work("linear", tensor(2, 5, 3), tensor(4, 3), tensor(4))
    assert found.matrix_flops == 240  # 2 * (2 * 5) * 4 * 3
    assert moved(found) == ((30 + 12 + 4) * 4, 40 * 4, 86 * 4)
    assert is_composite("aten::linear")
    assert not is_composite("aten::mm")


@pytest.mark.parametrize(
    ("a", "b", "flops", "elements"),
    [
        ((3,), (3,), 6, 1),
        ((2, 3), (3,), 12, 2),
        ((3,), (3, 4), 24, 4),
        ((6, 1, 2, 3), (5, 3, 4), 2 * 6 * 5 * 2 * 3 * 4, 6 * 5 * 2 * 4),
    ],
)
def test_matmul_broadcasts(
    a: tuple[int, ...], b: tuple[int, ...], flops: int, elements: int
) -> None:
    found = work("matmul", tensor(*a), tensor(*b))
    assert (found.matrix_flops, found.bytes_written) == (flops, elements * 4)


def test_scaled_mm_writes_the_dtype_it_is_told() -> None:
    a, b = tensor(16, 32, dtype="float8_e4m3fn"), tensor(32, 8, dtype="float8_e4m3fn")
    scale = tensor()
    found = work("_scaled_mm", a, b, scale, scale, None, None, "bfloat16", False)
    assert (found.matrix_flops, found.compute_dtype) == (8192, "float8_e4m3fn")  # 2 * 16 * 8 * 32
    # 512 + 256 bytes of float8, two scales of 4; 128 bfloat16 written
    assert moved(found) == (776, 256, 1032)


def test_grouped_mm_meets_one_matrix_per_row() -> None:
    offsets = tensor(4, dtype="int32")
    found = work("_grouped_mm", tensor(10, 3), tensor(4, 3, 5), offsets)
    assert found.matrix_flops == 300  # 2 * 10 rows * 3 * 5
    assert found.bytes_written == 10 * 5 * 4
    inner = work("_grouped_mm", tensor(3, 10), tensor(10, 5), offsets)
    assert (inner.matrix_flops, inner.bytes_written) == (300, 4 * 3 * 5 * 4)


def test_grouped_mm_reads_the_matrices_of_groups_that_have_rows() -> None:
    rows, matrices = tensor(2, 3), tensor(4, 3, 5)
    # Two rows meet two matrices at most: (2 * 3 + 2 * 3 * 5 + 4 offsets) * 4 bytes
    assert work("_grouped_mm", rows, matrices, tensor(4, dtype="int32")).bytes_read == 160
    # Both in the last group: (2 * 3 + 1 * 3 * 5) * 4
    assert work("_grouped_mm", rows, matrices, (0, 0, 0, 2)).bytes_read == 84
    inner = work("_grouped_mm", tensor(3, 10), tensor(10, 5), (5, 10))
    assert (inner.matrix_flops, inner.bytes_written) == (300, 2 * 3 * 5 * 4)


def test_mkldnn_linear_pieces() -> None:
    # grad (6, 4), weight (4, 3), input (6, 3): each product 2 * 6 * 4 * 3 = 144
    assert work("mkldnn_linear_backward_input", (6, 3), tensor(6, 4), tensor(4, 3)).flops == 144
    found = work("mkldnn_linear_backward_weights", tensor(6, 4), tensor(6, 3), tensor(4, 3), True)
    assert (found.matrix_flops, found.vector_flops) == (144, 24)


def test_inductors_linear_with_an_addend() -> None:
    call = OpCall(
        "mkldnn::_linear_pointwise",
        (tensor(2, 3), tensor(2, 4), tensor(4, 3), tensor(4), "add"),
        None,
        "binary",
    )
    found = work_of(call)
    assert found is not None
    assert (found.matrix_flops, found.bytes_read) == (48, (6 + 8 + 12 + 4) * 4)


def test_einsum_counts_one_multiply_add_per_value_of_all_letters() -> None:
    # "bij,bjk->bik" with b 2, i 3, j 4, k 5: 2 * 120
    found = work("einsum", "bij,bjk->bik", (tensor(2, 3, 4), tensor(2, 4, 5)), None)
    assert (found.matrix_flops, found.bytes_written) == (240, 2 * 3 * 5 * 4)


def test_multi_dot_takes_the_cheapest_order() -> None:
    # 10x100, 100x5, 5x50 (the textbook chain): 5000 + 2500 = 7500 multiply-adds
    found = work("linalg_multi_dot", (tensor(10, 100), tensor(100, 5), tensor(5, 50)))
    assert found.matrix_flops == 15000


def test_addmm_in_place_touches_its_result_once() -> None:
    found = work("addmm_", tensor(2, 4), tensor(2, 3), tensor(3, 4), 1, 1)
    assert moved(found) == (32 + 72, 32, 32 + 72)
    assert found.fresh_bytes == 0
    # With beta 0 the result is only written.
    assert moved(work("addmm_", tensor(2, 4), tensor(2, 3), tensor(3, 4), 0, 1)) == (72, 32, 104)


def test_overlapping_windows_are_read_once() -> None:
    # 8 windows of 3 over 10 numbers, as ``unfold`` makes them
    windows = tensor(8, 3, strides=(1, 1))
    assert work("mv", windows, tensor(3)).bytes_read == (10 + 3) * 4


def test_bilinear_arrives_as_a_sum_of_triple_products() -> None:
    # bilinear of x (2, 3), weight (4, 3, 5), y (2, 5): dimensions (batch 2, out 4, i 3, j 5) = 120
    # points; the longest summed one, j, goes with the first product: 120 + 120 / 5 = 144.
    found = work(
        "_trilinear", tensor(2, 3), tensor(4, 3, 5), tensor(2, 5), (1, 3), (0,), (1, 2), (2, 3), 1
    )
    assert found.matrix_flops == 2 * 144
    # Reads (6 + 60 + 10) * 4 bytes, writes 2 x 4 numbers.
    assert (found.bytes_read, found.bytes_written) == (304, 32)


def test_linear_cross_entropy_computes_its_gradients_at_once() -> None:
    rest = ("mean", -100, 0.0, 4, "compact", "float32", True)
    x, weight, target = tensor(4, 8), tensor(16, 8), tensor(4, dtype="int64")
    call = OpCall(
        "torch_nn::_linear_cross_entropy_batch_chunked",
        (x, weight, target, None, None, *rest, True, True, False),
    )
    found = work_of(call)
    assert found is not None
    # Three products of 4 x 16 x 8: 3 * 2 * 512 = 3072.
    assert found.matrix_flops == 3072
    # Reads 32 and 128 floats and 4 int64; writes the loss and both gradients.
    assert moved(found) == (128 + 512 + 32, 4 + 128 + 512, 672 + 644)
    # Of 64 logits a maximum, a difference, an exponential, a sum; a division and a product.
    assert (found.vector_flops, found.special) == (64 * (11 + 5), 64)
