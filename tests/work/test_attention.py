from __future__ import annotations

import pytest

from gobrrr.timeline.ops import Arg, OpCall
from gobrrr.work import work_of
from gobrrr.work.formulas.attention import visible_pairs

from .calls import moved, tensor, work

Q = tensor(2, 4, 16, 8)  # batch 2, heads 4, positions 16, width 8
K = tensor(2, 4, 16, 8)


def test_forward_is_two_products() -> None:
    found = work("_scaled_dot_product_flash_attention_for_cpu", Q, K, K, 0.0, False, None, None)
    # pairs 2 * 4 * 16 * 16 = 2048; scores and values 2 * 2048 * (8 + 8) = 65536
    assert found.matrix_flops == 65536
    # q, k, v of 1024 each; out 1024 and a log-sum-exp of 2 * 4 * 16 = 128
    assert moved(found) == (3 * 4096, 4096 + 512, 4 * 4096 + 512)
    # per pair scale, maximum, subtraction, exp (8), sum = 12; per query a division and 8 products
    assert found.vector_flops == 2048 * 12 + 128 * (8 + 4)
    assert found.special == 2048


def test_causal_sees_the_triangle() -> None:
    assert visible_pairs(3, 3, True) == 6  # 1 + 2 + 3
    assert visible_pairs(2, 5, True) == 3  # tril from the top left: 1 + 2
    assert visible_pairs(5, 3, True) == 12  # 1 + 2 + 3 + 3 + 3
    found = work("_scaled_dot_product_flash_attention_for_cpu", Q, K, K, 0.0, True, None, None)
    # 16 * 17 / 2 = 136 pairs a head: 2 * 8 * 136 * 16 = 34816
    assert found.matrix_flops == 34816


def test_grouped_keys_are_read_at_their_own_size() -> None:
    k = tensor(2, 1, 16, 8)
    found = work("_scaled_dot_product_flash_attention", Q, k, k, 0.0, False, False)
    assert found.matrix_flops == 65536
    assert found.bytes_read == 4096 + 2 * 1024


def test_backward_is_five_products() -> None:
    lse = tensor(2, 4, 16)
    args = (Q, Q, K, K, Q, lse, 0.0, False, None, None)
    found = work("_scaled_dot_product_flash_attention_for_cpu_backward", *args)
    # 2048 pairs * 2 * (3 * 8 + 2 * 8) = 163840 = 2.5 times the forward
    assert found.matrix_flops == 163840
    assert moved(found) == (5 * 4096 + 512, 3 * 4096, 8 * 4096 + 512)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("_scaled_dot_product_efficient_attention", (Q, K, K, None, True, 0.0, True)),
        ("_scaled_dot_product_cudnn_attention", (Q, K, K, None, True, 0.0, True, False)),
        ("_scaled_dot_product_fused_attention_overrideable", (Q, K, K, None, 0.0, True, False)),
        ("_scaled_dot_product_flash_attention", (Q, K, K, 0.0, True, False)),
        ("scaled_dot_product_attention", (Q, K, K, None, 0.0, True)),
    ],
)
def test_every_backend_finds_its_causal_flag(name: str, args: tuple) -> None:
    assert work(name, *args).matrix_flops == 34816


def test_every_backend_finds_its_causal_flag_backward() -> None:
    lse, seed = tensor(2, 4, 16), tensor(dtype="int64")
    causal = 2 * 8 * 136 * (3 * 8 + 2 * 8)
    flash = (Q, Q, K, K, Q, lse, None, None, 16, 16, 0.0, True, seed, seed)
    assert work("_scaled_dot_product_flash_attention_backward", *flash).matrix_flops == causal
    efficient = (Q, Q, K, K, None, Q, lse, seed, seed, 0.0, (True, True, True, False), True)
    name = "_scaled_dot_product_efficient_attention_backward"
    assert work(name, *efficient).matrix_flops == causal
    cudnn = (Q, Q, K, K, Q, lse, seed, seed, None, None, None, 16, 16, 0.0, True)
    assert work("_scaled_dot_product_cudnn_attention_backward", *cudnn).matrix_flops == causal
    over = (Q, Q, K, K, None, (True,) * 4, Q, lse, None, None, 16, 16, 0.0, True, seed, seed)
    name = "_scaled_dot_product_fused_attention_overrideable_backward"
    assert work(name, *over).matrix_flops == causal


def test_a_mask_is_read_at_its_own_size() -> None:
    mask = tensor(2, 4, 16, 16, strides=(16, 0, 0, 1))
    found = work("_scaled_dot_product_flash_attention_for_cpu", Q, K, K, 0.0, False, mask, None)
    assert found.bytes_read == 3 * 4096 + 2 * 16 * 4
    assert found.matrix_flops == 65536


def test_kernels_with_heads_after_positions() -> None:
    q = tensor(2, 16, 4, 8)
    dense = work("_flash_attention_forward", q, q, q, None, None, 16, 16, 0.0, False, False)
    assert dense.matrix_flops == 65536
    # One new query against 16 keys is on the last row: it sees them all.
    last = work("_flash_attention_forward", tensor(2, 1, 4, 8), q, q, None, None, 1, 16, 0.0, True)
    assert last.matrix_flops == 2 * 2 * 4 * 16 * 16
    efficient = work("_efficient_attention_forward", q, q, q, None, None, None, None, None, 0.0, 1)
    assert efficient.matrix_flops == 34816


def test_packed_sequences_of_equal_length_are_the_least_work() -> None:
    # 2 sequences of 16 in 32 tokens: the same as the dense batch.
    q, cumulative = tensor(32, 4, 8), tensor(3, dtype="int32")
    args = (q, q, q, cumulative, cumulative, 16, 16, 0.0)
    assert work("_flash_attention_forward", *args, False, False).matrix_flops == 65536
    assert work("_flash_attention_forward", *args, True, False).matrix_flops == 34816


def test_the_package_flash_attn() -> None:
    q, lse = tensor(2, 16, 4, 8), tensor(2, 4, 16)

    def flops(name: str, *args: Arg) -> float | None:
        found = work_of(OpCall(f"flash_attn::_flash_attn_{name}", args))
        return None if found is None else found.matrix_flops

    assert flops("forward", q, q, q, 0.0, 0.35, False, -1, -1, 0.0, None, False) == 65536
    assert flops("forward", q, q, q, 0.0, 0.35, True, -1, 0, 0.0, None, False) == 34816
    given = (q, q, q, q, q, lse, q, q, q)
    assert flops("backward", *given, 0.0, 0.35, False, -1, -1, 0.0, None, False) == 163840
    packed, lengths = tensor(32, 4, 8), tensor(3, dtype="int32")
    rest = (lengths, lengths, 16, 16, 0.0, 0.35, True, -1, 0)
    assert flops("varlen_forward", packed, packed, packed, *rest) == 34816
    assert flops("varlen_backward", *(packed,) * 5, lse, *(packed,) * 3, *rest) == 2.5 * 34816
    # A sliding window sees fewer pairs; a fork may mean something else.
    assert flops("forward", q, q, q, 0.0, 0.35, True, 4, 0, 0.0, None, False) is None
    assert flops("forward", q, q, q, q, q, q, q, q) is None


def test_flex_attention_counts_the_share_that_its_mask_leaves() -> None:
    q, k = tensor(2, 4, 8, 16), tensor(2, 2, 8, 16)
    found = work_of(OpCall("flex::attention", (q, k, k, 0.5)))
    assert found is not None
    # 2 * (16 + 16) FLOPs for each of 2 * 4 * 8 * 8 pairs, half of them
    assert found.matrix_flops == 64 * 512 / 2
    statistics = tensor(2, 4, 8)
    back = work_of(OpCall("flex::attention_backward", (q, q, k, k, q, statistics, 0.5)))
    assert back is not None
    assert back.matrix_flops == 2 * (3 * 16 + 2 * 16) * 512 / 2
