"""What is neither FLOPs nor bytes has a ceiling of its own, and a name."""

from __future__ import annotations

import pytest

from gobrrr.devices.ceilings import Ceiling, Ceilings, MemoryLevel
from gobrrr.roofline.operator_limits import GATHERING, RANDOM, SORTING, TRANSCENDENTAL, roof_of_op
from gobrrr.roofline.roof import COMPUTE_VECTOR, MEMORY
from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
from gobrrr.work import work_of

N = 1 << 20


def ceilings(**rates: float) -> Ceilings:
    rows = {"vector.float32": 1e15, **{f"operator.{k}": v for k, v in rates.items()}}
    level = MemoryLevel("dram", None, ((0.0, 1e15),))
    return Ceilings("a processor", {k: Ceiling(k, v, "op/s", "measured", "") for k, v in
                                    rows.items()}, (level,))  # fmt: skip


def spec(*shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(shape, dtype)


def roof(name: str, *args: Arg, rates: dict[str, float], out: TensorSpec | None = None):
    call = OpCall(f"aten::{name}", args, None if out is None else (out,))
    work = work_of(call)
    assert work is not None
    return roof_of_op(call, work, ceilings(**rates))


def test_random_numbers_are_drawn_at_the_generators_rate() -> None:
    found = roof("bernoulli_", spec(N), 0.1, rates={"bernoulli_": 1e9})
    assert found.time_s == pytest.approx(N / 1e9)
    assert (found.limit, found.regime) == (RANDOM, COMPUTE_VECTOR)


@pytest.mark.parametrize("name", ["tanh", "tanh_", "exp", "erf", "log", "gelu"])
def test_functions_have_the_rate_of_their_own_loop(name: str) -> None:
    found = roof(name, spec(N), rates={name.rstrip("_"): 2e9})
    assert found.time_s == pytest.approx(N / 2e9)
    assert (found.limit, found.regime) == (TRANSCENDENTAL, COMPUTE_VECTOR)


def test_the_rate_of_a_likeness_is_no_ceiling() -> None:
    # ``hardswish`` is costed like ``silu``; it could well be faster.
    assert roof("hardswish", spec(N), rates={"silu": 1e9}).limit == ""


def test_the_gelu_with_tanh_is_another_loop() -> None:
    rates = {"gelu": 1e9, "gelu.tanh": 4e9}
    assert roof("gelu", spec(N), "tanh", rates=rates).time_s == pytest.approx(N / 4e9)


def test_other_dtypes_have_other_loops() -> None:
    assert roof("bernoulli_", spec(N, dtype="bfloat16"), 0.5, rates={"bernoulli_": 1.0}).limit == ""


def test_a_sort_takes_n_log_n() -> None:
    sixteen, eight = (
        roof("sort", spec(N >> 16, 1 << 16), rates={"sort": 1e8}),
        roof("sort", spec(N >> 8, 1 << 8), rates={"sort": 1e8}),
    )
    assert eight.time_s == pytest.approx(N / 1e8)
    assert sixteen.time_s == pytest.approx(2 * eight.time_s)
    assert sixteen.limit == SORTING
    assert roof("sort", spec(N // 8, 8), rates={"sort": 1e8}).limit == ""


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("index_select", (spec(1000, 4), 0, spec(N, dtype="int64"))),
        ("embedding", (spec(1000, 4), spec(N, dtype="int64"))),
    ],
)
def test_a_gather_takes_a_fetch_for_each_index(name: str, args: tuple[Arg, ...]) -> None:
    found = roof(name, *args, rates={"fetch.index_select": 1e8}, out=spec(N, 4))
    assert found.time_s == pytest.approx(N / 1e8)
    assert (found.limit, found.regime) == (GATHERING, MEMORY)


def test_an_index_that_is_expanded_over_a_row_is_one_fetch() -> None:
    # ``index[:, None].expand(-1, 64)``: PyTorch copies rows then.
    rows = N >> 6
    x, out = spec(1000, 64), spec(rows, 64)
    expanded = TensorSpec((rows, 64), "int64", (1, 0))
    of_rows = roof("gather", x, 0, expanded, rates={"fetch.gather": 1e8}, out=out)
    of_elements = roof("gather", x, 0, spec(rows, 64, dtype="int64"),
                       rates={"fetch.gather": 1e8}, out=out)  # fmt: skip
    assert of_rows.time_s == pytest.approx(rows / 1e8)
    assert of_elements.time_s == pytest.approx(N / 1e8)


def test_where_bytes_take_longer_they_decide() -> None:
    call = OpCall("aten::bernoulli_", (spec(N), 0.1))
    slow = MemoryLevel("dram", None, ((0.0, 1e6),))
    known = ceilings(bernoulli_=1e9)
    found = roof_of_op(call, work_of(call), Ceilings("x", known.rows, (slow,)))
    assert (found.limit, found.regime) == ("", MEMORY)


def test_a_device_without_such_rates_has_the_plain_roof() -> None:
    assert roof("bernoulli_", spec(N), 0.1, rates={}).limit == ""
