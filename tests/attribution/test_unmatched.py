"""Time of ops that match no recorded op: given to those of its name, or left apart, never lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.attribution.cpu.unmatched import calls_of_alike, shared_by_name
from gobrrr.work.estimate import Work

NAMES = ("aten::mm", "aten::add", "aten::relu")


def shared(names, kernel_ns, ran, calls, other_ns, other_count):  # type: ignore[no-untyped-def]
    columns = [np.array(column, np.float64) for column in (kernel_ns, ran, calls)]
    kernel, left, count = shared_by_name(names, *columns, other_ns, other_count)
    return kernel.tolist(), left, count


def test_calls_that_the_mean_work_counts_take_the_time_of_their_name() -> None:
    # The second product was seen in half of the steps and counts in all: half a call is missing.
    assert shared(
        ["aten::mm", "aten::mm", "aten::relu"], [10, 5, 3], [1, 0.5, 1], [1, 1, 1],
        {"aten::mm": 7.0}, {"aten::mm": 0.5},
    ) == ([10, 12, 3], {}, {})  # fmt: skip


def test_what_no_work_counts_stays_apart() -> None:
    # Two calls a step match nothing, half a call is missing: a quarter of them.
    kernel, left, count = shared(
        ["aten::mm"], [5], [0.5], [1], {"aten::mm": 8.0}, {"aten::mm": 2.0}
    )
    assert (kernel, left, count) == ([7], {"aten::mm": 6.0}, {"aten::mm": 1.5})
    # None is missing; nor is one of that name.
    for name, calls in (("aten::mm", 0.5), ("aten::add", 1.0)):
        assert shared(["aten::mm"], [5], [0.5], [calls], {name: 8.0}, {name: 2.0}) == (
            [5], {name: 8.0}, {name: 2.0},
        )  # fmt: skip


def test_in_place_forms_share_what_is_missing_of_their_name() -> None:
    # One call is missing, two match nothing.
    kernel, left, count = shared(
        ["aten::add"], [4], [1], [2], {"aten::add": 3.0, "aten::add_": 5.0},
        {"aten::add": 1.0, "aten::add_": 1.0},
    )  # fmt: skip
    assert (kernel, left, count) == ([7], {"aten::add_": 5.0}, {"aten::add_": 1.0})


def work(flops: float) -> Work:
    return Work(flops, 0.0, 1, 0, 1, "float32", "contraction")


@pytest.mark.parametrize(
    ("works", "count", "expected"),
    [
        # Two products a step and one more of their name: half as often again.
        ((work(8), work(8)), 1.0, [1.5, 1.5]),
        # Of two sizes, or of an unknown one, or more than were recorded: nobody knows which.
        ((work(8), work(9)), 1.0, [1, 1]),
        ((None, None), 1.0, [1, 1]),
        ((work(8), work(8)), 2.0, [1, 1]),
    ],
)
def test_an_unmatched_op_is_like_recorded_ones_that_are_all_alike(works, count, expected) -> None:  # type: ignore[no-untyped-def]
    ran = np.ones(3)
    names = ["aten::dot", "aten::dot", "aten::relu"]
    calls = calls_of_alike(names, [*works, work(1)], ran, {"aten::dot": count})
    assert calls.tolist() == [*expected, 1]


def quarters(number: int) -> float:
    return number / 4


rows = st.tuples(
    st.sampled_from(NAMES), st.floats(0, 1e6), st.integers(0, 16).map(quarters), st.floats(-2, 4)
)


@given(
    st.lists(rows, max_size=8),
    st.dictionaries(
        st.sampled_from([*NAMES, "aten::add_"]),
        st.tuples(st.floats(0, 1e6), st.integers(0, 16).map(quarters)),
    ),
)
def test_all_time_is_kept(ops, others) -> None:  # type: ignore[no-untyped-def]
    names = [name for name, *_ in ops]
    kernel_ns = [time if ran else 0.0 for _, time, ran, _ in ops]
    other_ns = {name: time for name, (time, _) in others.items()}
    other_count = {name: count for name, (_, count) in others.items()}
    before = sum(kernel_ns) + sum(other_ns.values())
    kernel, left, count = shared(
        names, kernel_ns, [ran for *_, ran, _ in ops], [calls for *_, calls in ops],
        other_ns, other_count,
    )  # fmt: skip
    assert sum(kernel) + sum(left.values()) == pytest.approx(before)
    assert all(after >= time for after, time in zip(kernel, kernel_ns))
    assert all(0 <= left[name] <= other_ns[name] for name in left)
    assert left.keys() == count.keys()
