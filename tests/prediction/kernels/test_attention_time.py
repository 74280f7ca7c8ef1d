"""Fused attention: what its flags say of its time."""

from __future__ import annotations

import pytest

from gobrrr.prediction.kernels.kernel_model import Flags, estimate_op
from gobrrr.prediction.kernels.target import target_device
from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
from gobrrr.work import work_of
from prediction.kernels.toy_device import aten, spec

H100 = target_device("H100-SXM")
LENGTH = 4096
Q = spec(4, 16, LENGTH, 64, dtype="bfloat16")
STATISTICS = spec(4, 16, LENGTH)
# The operators below the dispatcher have heads after positions.
ROWS = spec(4, LENGTH, 16, 64, dtype="bfloat16")
SEED = spec(dtype="int64")
ALL = (True, True, True, False)


def seconds(call: OpCall, flags: Flags | None = None) -> float:
    work = work_of(call)
    assert work is not None
    found = estimate_op(call, work, H100, flags=flags or Flags())
    assert found is not None
    return found.time_s


def with_statistics(name: str, wanted: bool, causal: bool = False) -> OpCall:
    return aten(f"_scaled_dot_product_{name}_attention", Q, Q, Q, None, wanted, 0.0, causal)


@pytest.mark.parametrize("name", ["efficient", "cudnn"])
@pytest.mark.parametrize("causal", [False, True])
def test_keeping_the_log_sum_exp_for_the_backward_is_never_faster(name: str, causal: bool) -> None:
    without, kept = (seconds(with_statistics(name, each, causal)) for each in (False, True))
    assert kept >= without


@pytest.mark.parametrize(
    ("name", "before", "flags"),
    [
        ("_scaled_dot_product_flash_attention", (Q, Q, Q, 0.0), (False, True)),
        ("_scaled_dot_product_efficient_attention", (Q, Q, Q, None, True, 0.0), (False, True)),
        ("_scaled_dot_product_cudnn_attention", (Q, Q, Q, None, True, 0.0), (False, True)),
        ("_flash_attention_forward", (ROWS, ROWS, ROWS, None, None, 1, 1, 0.0), (False, True)),
        (
            "_efficient_attention_forward",
            (ROWS, ROWS, ROWS, None, None, None, None, None, 0.0),
            (0, 1, 2),
        ),
        (
            "_scaled_dot_product_efficient_attention_backward",
            (Q, Q, Q, Q, None, Q, STATISTICS, SEED, SEED, 0.0, ALL),
            (False, True),
        ),
    ],
)
def test_half_the_pairs_take_less_than_three_quarters_of_the_time(
    name: str, before: tuple[Arg, ...], flags: tuple[Arg, ...]
) -> None:
    whole, *causal = (seconds(aten(name, *before, flag)) for flag in flags)
    assert all(0.5 * whole < each < 0.75 * whole for each in causal)


def test_the_memory_efficient_kernel_multiplies_float32_in_parts_whatever_is_allowed() -> None:
    x = spec(4, 16, LENGTH, 64)
    call = aten("_scaled_dot_product_efficient_attention", x, x, x, None, True, 0.0, False)
    assert seconds(call, Flags(tf32_matmul=True)) == seconds(call, Flags(tf32_matmul=False))


def kernel(name: str, q: TensorSpec, k: TensorSpec, mask: int, sequences: int = 0) -> OpCall:
    """An operator below the dispatcher; its tensors are packed where sequences are given."""
    lengths = spec(sequences + 1, dtype="int32") if sequences else None
    out = (q,) if name.endswith("inplace") else ()
    if "flash" in name:
        return aten(name, *out, q, k, k, lengths, lengths, 1, 1, 0.0, bool(mask))
    return aten(name, q, k, k, None, lengths, lengths, None, None, 0.0, mask)


@pytest.mark.parametrize(
    "name",
    [
        "_flash_attention_forward",
        "_flash_attention_forward_no_dropout_inplace",
        "_efficient_attention_forward",
    ],
)
def test_the_last_queries_see_all_keys_where_the_mask_is_aligned_there(name: str) -> None:
    few = spec(4, 1024, 16, 64, dtype="bfloat16")
    whole, causal = (seconds(kernel(name, few, ROWS, mask)) for mask in (0, 2))
    assert 0.8 * whole < causal <= whole
    whole, causal = (seconds(kernel(name, ROWS, few, mask)) for mask in (0, 2))
    assert 0.1 * whole < causal < 0.3 * whole


@pytest.mark.parametrize("backward", [False, True])
def test_a_causal_mask_of_the_flash_operator_is_aligned_at_the_last_key(backward: bool) -> None:
    """As ``causal_lower_right`` calls it for a chunk of queries after keys of a cache."""
    q, k = (spec(4, 16, each, 64, dtype="bfloat16") for each in (1024, LENGTH))
    # What the backward has beside it, up to the dropout.
    rest = (q, spec(4, 16, 1024), None, None, 1024, LENGTH) if backward else ()
    name = "_scaled_dot_product_flash_attention" + ("_backward" if backward else "")
    first = (q,) if backward else ()
    whole, causal = (aten(name, *first, q, k, k, *rest, 0.0, each) for each in (False, True))
    assert 0.8 * seconds(whole) < seconds(causal) < seconds(whole)
    works = [work_of(each) for each in (whole, causal)]
    flops = [each.matrix_flops for each in works if each is not None and each.matrix_flops]
    # All but the triangle above the diagonal of the last 1024 keys.
    assert flops[1] / flops[0] == pytest.approx(1 - 1023 / 2 / LENGTH)


@pytest.mark.parametrize("kind", ["flash", "efficient"])
@pytest.mark.parametrize("mask", [0, 1])
@pytest.mark.parametrize("sequences", [1, 8, 64])
def test_packed_sequences_of_one_length_take_as_long_as_a_batch(
    kind: str, mask: int, sequences: int
) -> None:
    length = 8192 // sequences
    name = f"_{kind}_attention_forward"
    shape = (8192,) if kind == "flash" else (1, 8192)
    x = spec(*shape, 16, 64, dtype="bfloat16")
    batch = spec(sequences, length, 16, 64, dtype="bfloat16")
    found = seconds(kernel(name, x, x, mask, sequences))
    assert found == pytest.approx(seconds(kernel(name, batch, batch, mask)))


def test_the_backward_of_packed_sequences_takes_as_long_as_that_of_a_batch() -> None:
    x, batch = spec(8192, 16, 64, dtype="bfloat16"), spec(8, 1024, 16, 64, dtype="bfloat16")
    lengths, sums = spec(9, dtype="int32"), spec(16, 8192)
    rest = (1, 1, 0.0, True, SEED, SEED)
    packed = aten("_flash_attention_backward", x, x, x, x, x, sums, lengths, lengths, *rest)
    whole = (batch, batch, batch, batch, batch, spec(8, 16, 1024), None, None)
    assert seconds(packed) == pytest.approx(
        seconds(aten("_flash_attention_backward", *whole, *rest))
    )


# TFLOP/s of 16384 positions in sequences, 2048 elements a position, on an H100-SXM (Shah et al.,
# "FlashAttention-3", 2024, figures 5 and 6). Fitted: FlashAttention-2 with heads of 128.
PUBLISHED = [
    ("flash", False, 128, {512: 309, 2048: 362, 16384: 370}, 0.06),
    ("flash", True, 128, {512: 214, 2048: 291, 16384: 322}, 0.2),
    ("flash", True, 64, {512: 198, 2048: 264, 16384: 291}, 0.1),
    ("cudnn", False, 128, {512: 497, 2048: 617, 16384: 595}, 0.1),
    ("cudnn", True, 128, {512: 305, 2048: 465, 16384: 516}, 0.15),
    ("cudnn", True, 64, {512: 266, 2048: 395, 16384: 433}, 0.15),
]


@pytest.mark.parametrize(("kernel", "backward", "head", "rates", "within"), PUBLISHED)
def test_rates_are_those_published(
    kernel: str, backward: bool, head: int, rates: dict[int, float], within: float
) -> None:
    for length, published in rates.items():
        q = spec(16384 // length, 2048 // head, length, head, dtype="bfloat16")
        rows = spec(*q.shape[:3])
        name = f"_scaled_dot_product_{kernel}_attention"
        if kernel == "flash":
            gradient = (q, q, q, q, q, rows, None, None, length, length, 0.0, False)
            arguments: tuple[Arg, ...] = gradient if backward else (q, q, q, 0.0, False)
        else:
            gradient = (q, q, q, q, q, rows, SEED, SEED, None, None, None, length, length, 0.0,
                        False)  # fmt: skip
            arguments = gradient if backward else (q, q, q, None, True, 0.0, False)
        flops = (10 if backward else 4) * 16384 * length * 2048
        took = seconds(aten(name + ("_backward" if backward else ""), *arguments))
        assert flops / took / 1e12 == pytest.approx(published, rel=within)
