from __future__ import annotations

import pytest

from gobrrr.work.formulas.pointwise import cost_of
from gobrrr.work.formulas.pointwise_table import POINTWISE

from .calls import moved, tensor, work


def test_inputs_are_read_at_their_own_size() -> None:
    found = work("add", tensor(4, 8), tensor(8), 1)
    assert found.vector_flops == 32
    assert moved(found) == (128 + 32, 128, 288)
    assert (found.matrix_flops, found.op_class) == (0, "elementwise")


def test_an_expanded_tensor_counts_once() -> None:
    found = work("mul", tensor(4, 8), tensor(4, 8, strides=(0, 1)))
    assert found.bytes_read == 128 + 32


def test_a_scaled_addition_is_two_operations() -> None:
    assert work("add", tensor(10), tensor(10), 2).vector_flops == 20
    assert work("add", tensor(10), tensor(10), None).vector_flops == 10


def test_in_place_reads_and_writes_the_same_bytes() -> None:
    found = work("mul_", tensor(10), tensor(10))
    # self read and written, other read: 80 + 40 moved, 80 touched
    assert moved(found) == (80, 40, 80)
    assert found.fresh_bytes == 0
    scalar = work("mul_", tensor(10), 2.0)
    assert moved(scalar) == (40, 40, 40)


def test_a_given_result_is_only_written() -> None:
    found = work("add", tensor(10), tensor(10), 1, tensor(10))
    assert moved(found) == (80, 40, 120)
    assert found.fresh_bytes == 0


def test_one_tensor_used_twice_is_read_once() -> None:
    x = tensor(10, storage=1, offset=0)
    assert work("mul", x, x).bytes_read == 40
    # Two views of one storage at different offsets are two tensors.
    y = tensor(10, storage=1, offset=10)
    assert work("mul", x, y).bytes_read == 80
    # Where storages are unknown, they may be two.
    assert work("mul", tensor(10), tensor(10)).bytes_read == 80


def test_reduced_precision_computes_in_float32() -> None:
    found = work("mul", tensor(10, dtype="bfloat16"), tensor(10, dtype="bfloat16"))
    assert (found.compute_dtype, found.vector_flops) == ("float32", 10)
    assert moved(found) == (40, 20, 60)
    assert work("mul", tensor(10, dtype="float64"), 2).compute_dtype == "float64"


def test_integers_move_bytes_but_count_no_flops() -> None:
    found = work("add", tensor(10, dtype="int64"), 1, 1)
    assert (found.flops, found.bytes_moved) == (0, 160)
    # bool results: 8 bytes an element read, 1 written
    assert moved(work("eq", tensor(10, dtype="int64"), 0)) == (80, 10, 90)


def test_comparing_floats_counts_one() -> None:
    found = work("lt", tensor(10), 0.5)
    assert (found.vector_flops, found.bytes_written) == (10, 10)


def test_promotion_decides_the_result() -> None:
    # int64 with float32 is float32; a tensor without dimensions does not widen.
    assert work("mul", tensor(10, dtype="int64"), tensor(10)).bytes_written == 40
    assert work("mul", tensor(10), tensor(dtype="float64")).bytes_written == 40
    assert (
        work("mul", tensor(10, dtype="float16"), tensor(10, dtype="bfloat16")).bytes_written == 40
    )
    # A function of integers is a float.
    assert work("exp", tensor(10, dtype="int64")).bytes_written == 40


def test_selection_moves_only() -> None:
    found = work("where", tensor(10, dtype="bool"), tensor(10), tensor())
    assert (found.flops, found.bytes_read) == (0, 10 + 40 + 4)


def test_transcendentals_by_their_weight() -> None:
    # silu: negation, addition, exp (8), division (4); only the exp is a transcendental
    found = work("silu", tensor(10))
    assert (found.vector_flops, found.special) == (140, 10)
    assert work("sqrt", tensor(10)).special == 0
    # gelu: three products, an addition, erf; its tanh form 8 beside the tanh
    assert work("gelu", tensor(10), "none").vector_flops == 120
    assert work("gelu", tensor(10), "tanh").vector_flops == 160


def test_powers_are_what_the_kernel_computes() -> None:
    assert work("pow", tensor(10), 2).vector_flops == 10
    assert work("pow", tensor(10), 1.0).vector_flops == 0  # a copy, as in the gradient of x ** 2
    assert work("pow", tensor(10), 0.5).vector_flops == 40
    assert work("pow", tensor(10), 2.5).vector_flops == 170  # exp(2.5 * log(x)): 8 + 8 + 1


def test_complex_operations_count_their_real_ones() -> None:
    x = tensor(10, dtype="complex64")
    assert work("add", x, x, 1).vector_flops == 20
    assert work("mul", x, x).vector_flops == 60  # 4 products, 2 sums
    assert work("mul", x, x).compute_dtype == "float32"


def test_an_unknown_dtype_keeps_its_flops() -> None:
    found = work("add", tensor(10, dtype=""), tensor(10, dtype=""), 1)
    assert (found.vector_flops, found.bytes_moved) == (10, None)


def test_gradients_of_activations_read_two_tensors() -> None:
    found = work("gelu_backward", tensor(10), tensor(10), "none")
    # 9 basic, erf 8, exp 8
    assert (found.vector_flops, found.special) == (250, 20)
    assert moved(found) == (80, 40, 120)


def test_max_of_two_tensors_is_elementwise_and_of_one_a_reduction() -> None:
    assert work("max", tensor(4, 8), tensor(4, 8)).bytes_written == 128
    assert work("max", tensor(4, 8)).bytes_written == 4
    # values float32 and indices int64
    assert work("max", tensor(4, 8), 1, False).bytes_written == 4 * (4 + 8)


@pytest.mark.torch
def test_every_arity_of_the_table_is_the_widest_functional_schema() -> None:
    import torch

    widest: dict[str, int] = {}
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name.removeprefix("aten::")
        if name not in POINTWISE or not any("Tensor" in str(a.type) for a in schema.arguments):
            continue
        if any(argument.is_out for argument in schema.arguments):
            continue
        widest[name] = max(widest.get(name, 0), len(schema.arguments))
    wrong = {n: (POINTWISE[n].arity, w) for n, w in widest.items() if POINTWISE[n].arity != w}
    assert wrong == {}
    assert len(widest) > 150


def test_costs_are_positive_or_of_selections() -> None:
    free = {name for name, entry in POINTWISE.items() if cost_of(entry).flops == 0}
    assert {"where", "masked_fill", "bitwise_and", "bitwise_not"} <= free
    assert not free & {"add", "exp", "silu", "eq", "threshold_backward"}
