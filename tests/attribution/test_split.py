"""The split of a kernel: whatever comes in, its parts are not negative and sum to what it owns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.attribution.leaves import (
    COLLECTIVE,
    COPY,
    LEAVES,
    MEMORY,
    UNMODELLED,
    KernelShares,
)
from gobrrr.attribution.split import leaves_of_kernels, split_kernels

TIME_NS = st.floats(0, 1e9, allow_nan=False)
KERNEL = st.tuples(
    TIME_NS,  # duration
    TIME_NS | st.just(float("nan")),  # roof
    TIME_NS,  # fixed cost
    TIME_NS,  # page faults
    st.floats(0, 1),  # owned
    st.integers(0, COPY),  # regime
)


def split(rows: list[tuple[float, float, float, float, float, int]]) -> KernelShares:
    duration, roof, fixed, faults, owned, regime = (np.array(column) for column in zip(*rows))
    return split_kernels(
        np.arange(len(rows)), duration, regime.astype(np.uint8), roof, fixed_ns=fixed,
        page_faults_ns=faults, owned=owned,
    )  # fmt: skip


@given(st.lists(KERNEL, min_size=1, max_size=8))
def test_parts_are_not_negative_and_sum_to_what_the_kernel_owns(rows: list) -> None:
    found = split(rows)
    parts = [found.fixed_ns, found.page_faults_ns, found.roof_ns, found.below_ns]
    assert all((part >= 0).all() for part in parts)
    np.testing.assert_allclose(sum(parts), found.owned_ns, rtol=1e-12, atol=1e-6)
    leaves = leaves_of_kernels(found, "overhead.dispatch")
    assert set(leaves) == set(LEAVES)
    assert sum(leaves.values()) == pytest.approx(float(found.owned_ns.sum()), abs=1e-5)


@given(KERNEL)
def test_no_part_is_larger_than_what_it_stands_for(row: tuple) -> None:
    found = split([row])
    _, roof, fixed, faults, owned, regime = row
    assert found.fixed_ns[0] <= fixed * owned
    assert found.page_faults_ns[0] <= faults * owned
    if np.isnan(roof) or regime in (COPY, COLLECTIVE):
        assert found.roof_ns[0] == 0
    else:
        assert found.roof_ns[0] <= roof * owned


@given(KERNEL)
def test_a_kernel_that_owns_half_of_its_time_has_half_of_each_part(row: tuple) -> None:
    whole, half = split([(*row[:4], 1.0, row[5])]), split([(*row[:4], 0.5, row[5])])
    for part in ("fixed_ns", "page_faults_ns", "roof_ns", "below_ns", "owned_ns"):
        assert getattr(half, part)[0] == 0.5 * getattr(whole, part)[0]


def test_fixed_cost_comes_out_first_then_the_roof_then_page_faults() -> None:
    # 100 ns: fixed 10, roof 50, faults min(60, 40) = 40, below 0; of which it owns 40 %.
    found = split([(100.0, 50.0, 10.0, 60.0, 0.4, MEMORY)])
    assert found.fixed_ns[0] == pytest.approx(4)
    assert found.roof_ns[0] == pytest.approx(20)
    assert found.page_faults_ns[0] == pytest.approx(16)
    assert found.below_ns[0] == pytest.approx(0)


def test_a_copy_has_no_fixed_cost_and_an_unmodelled_kernel_has() -> None:
    copy, unknown = (100.0, 50.0, 10.0, 0.0, 1.0, COPY), (100.0, np.nan, 10.0, 0.0, 1.0, UNMODELLED)
    found = split([copy, unknown])
    assert found.fixed_ns.tolist() == [0, 10]
    assert found.below_ns.tolist() == [100, 90]
    leaves = leaves_of_kernels(found, "overhead.kernel_fixed_cost")
    assert leaves["memory.copies"] == 100
    assert leaves["unmodelled"] == 90
    assert leaves["overhead.kernel_fixed_cost"] == 10
