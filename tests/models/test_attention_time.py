"""Fused attention: what its flags say of its time."""

from __future__ import annotations

import pytest

from gobrrr.models.kernel_model import Flags, estimate_op
from gobrrr.models.target import target_device
from gobrrr.timeline.ops import Arg, OpCall
from gobrrr.work import work_of
from models.toy_device import aten, spec

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
