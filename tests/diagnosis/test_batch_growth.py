from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gobrrr.diagnosis.batch_growth import Side, compare_growth, same_ops
from gobrrr.timeline.ops import OpCall


def side(kernel_ns: list[float], roof_ns: list[float], overhead_s: float = 0.0) -> Side:
    names = ("aten::mm", "aten::_fused_attention")
    return Side(
        calls=tuple(OpCall(name, ()) for name in names),
        has_kernel=np.ones(2, bool),
        kernel_ns=np.array(kernel_ns),
        roof_ns=np.array(roof_ns),
        overhead_s=overhead_s,
        hidden_s=0.0,
        step_s=sum(kernel_ns) * 1e-9 + overhead_s,
    )


@pytest.mark.parametrize("roofs", [(np.nan, np.nan), (50.0, np.nan), (np.nan, 100.0)])
def test_kernels_of_unknown_work_grow_as_measured(roofs: tuple[float, float]) -> None:
    """The rest of the step is still held against its work."""
    single = side([6e5, 4e5], [5e5, roofs[0]])
    doubled = side([12e5, 7.6e5], [10e5, roofs[1]])
    found = compare_growth(single, doubled, [1_000_000] * 5, [1_960_000] * 5)
    assert found.work_ratio == pytest.approx(2.0)
    assert found.expected_s == pytest.approx(1.96e-3)
    assert found.overhead_s == pytest.approx(0.0, abs=1e-9)
    assert found.agrees
    assert "predicts 1.96x (40 % of the step is kernels of unknown work" in found.sentence
    assert [row.expected_s is None for row in found.ops] == [False, True]


def test_what_does_not_grow_is_overhead_beside_kernels_of_unknown_work() -> None:
    single = side([3e5, 2e5], [3e5, np.nan], 5e-4)
    doubled = side([6e5, 4e5], [6e5, np.nan], 5e-4)
    found = compare_growth(single, doubled, [1_000_000] * 5, [1_500_000] * 5)
    assert found.overhead_s == pytest.approx(5e-4)
    assert found.agrees


def test_without_known_work_that_grows_nothing_is_tested() -> None:
    """A copy of the split would agree with itself."""
    single = side([3e5, 2e5], [np.nan, np.nan], 5e-4)
    doubled = side([6e5, 4e5], [np.nan, np.nan], 5e-4)
    for twice_ns in (1_500_000, 1_000_000, 2_900_000):
        found = compare_growth(single, doubled, [1_000_000] * 5, [twice_ns] * 5)
        assert found.agrees is None and found.overhead_s is None
        assert "agrees" not in found.sentence and "says nothing" in found.sentence


@pytest.mark.parametrize(("twice_ns", "agrees"), [(1_000_000, True), (1_400_000, False)])
def test_kernels_that_hide_behind_the_host_are_held_to_a_step_that_does_not_grow(
    twice_ns: int, agrees: bool
) -> None:
    single = replace(side([1e5, 1e5], [1e5, 1e5], 8e-4), hidden_s=8e-4)
    doubled = side([2e5, 2e5], [2e5, 2e5], 6e-4)
    found = compare_growth(single, doubled, [1_000_000] * 5, [twice_ns] * 5)
    assert found.agrees is agrees and found.overhead_s is None
    assert found.expected_s == pytest.approx(1e-3)


def test_sizes_that_run_other_ops_are_not_compared() -> None:
    single = side([1e5, 1e5], [1e5, 1e5])
    assert same_ops(single, side([2e5, 2e5], [2e5, 2e5]))
    other = Side(
        calls=single.calls[:1], has_kernel=np.ones(1, bool), kernel_ns=np.array([2e5]),
        roof_ns=np.array([2e5]), overhead_s=0.0, hidden_s=0.0, step_s=2e-4,
    )  # fmt: skip
    assert not same_ops(single, other)
