from __future__ import annotations

from .calls import moved, tensor, work

P = (tensor(10), tensor(2, 5))  # 20 elements


def test_foreach_in_place_over_two_lists() -> None:
    found = work("_foreach_addcdiv_", P, P, P, (0.1, 0.1))
    # updated and two lists read, one written
    assert moved(found) == (240, 80, 240)
    assert found.vector_flops == 20 * 6  # a product, a division (4), a sum
    assert (found.special, found.fresh_bytes) == (0, 0)


def test_foreach_out_of_place_allocates() -> None:
    found = work("_foreach_sqrt", P)
    assert (moved(found), found.fresh_bytes, found.vector_flops) == ((80, 80, 160), 80, 80)


def test_foreach_with_a_scalar() -> None:
    found = work("_foreach_mul_", P, 0.9)
    assert (moved(found), found.vector_flops) == ((80, 80, 80), 20)


def test_lists_of_a_trace_have_no_dtype() -> None:
    unknown = (tensor(10, dtype=""), tensor(2, 5, dtype=""))
    found = work("_foreach_mul_", unknown, 0.9)
    assert (found.vector_flops, found.bytes_moved) == (20, None)


def test_foreach_norm_and_copy() -> None:
    norm = work("_foreach_norm", P, 2)
    assert (norm.vector_flops, norm.bytes_written) == (48, 8)  # 2 * 20 and two roots of 4
    half = tuple(tensor(*p.shape, dtype="bfloat16") for p in P)
    assert moved(work("_foreach_copy_", half, P)) == (80, 40, 120)


def test_fused_adamw_is_one_pass() -> None:
    steps = (tensor(), tensor())
    args = (P, P, P, P, (), steps)
    found = work("_fused_adamw_", *args, 1e-3, 0.9, 0.999, 0.01, 1e-8, False, False)
    # parameters and two moments updated, gradients and steps read
    assert moved(found) == (4 * 80 + 8, 3 * 80, 4 * 80 + 8)
    # moments 3 and 4, root 4 and 2, division 4 and 2, decay 1
    assert (found.vector_flops, found.special) == (20 * 20, 0)
    plain = work("_fused_adamw_", *args, 1e-3, 0.9, 0.999, 0, 1e-8, False, False)
    assert plain.vector_flops == 19 * 20


def test_fused_sgd_with_momentum() -> None:
    found = work("_fused_sgd_", P, P, P, 0, 0.9, 0.1, 0.0, False, False, False)
    assert (moved(found), found.vector_flops) == ((240, 160, 240), 100)
    plain = work("_fused_sgd_", P, P, (), 0, 0.0, 0.1, 0.0, False, False, False)
    assert (moved(plain), plain.vector_flops) == ((160, 80, 160), 40)


def test_unscaling_gradients() -> None:
    found = work("_amp_foreach_non_finite_check_and_unscale_", P, tensor(1), tensor())
    assert (found.vector_flops, found.bytes_written) == (40, 80 + 8)
