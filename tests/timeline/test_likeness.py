"""Which calls are alike: what is known of one of them holds for the others."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gobrrr.timeline.ops import Arg, OpCall, TensorSpec

X = TensorSpec((4, 4), "float32", (4, 1), storage=1, device="cuda:0", offset=0)
Y = replace(X, storage=2)


def call(*args: Arg, **options: object) -> OpCall:
    return OpCall("aten::add", args, (replace(X, storage=9),), **options)  # type: ignore[arg-type]


def test_storages_do_not_matter_but_what_they_share_does() -> None:
    assert call(X, Y).likeness == call(replace(X, storage=7), replace(X, storage=5)).likeness
    assert call(X, Y).likeness != call(X, X).likeness
    # Another part of the same memory, and memory of which nothing is known, is not shared.
    assert call(X, Y).likeness == call(X, replace(X, offset=16)).likeness
    assert call(X, Y).likeness == call(replace(X, storage=None), replace(X, storage=None)).likeness


def test_devices_arguments_and_what_is_missed_matter() -> None:
    others = [
        call(X, replace(Y, device="cpu")),
        call(X, replace(Y, shape=(4, 1))),
        call(X, replace(Y, strides=None)),
        call(X, replace(Y, dtype="float16")),
        call(X, Y, 2),
        call((X, Y)),
        call(X, Y, overload="out"),
        call(X, Y, missed=((8.0, 0.0),)),
        OpCall("aten::add", (X, Y)),
        OpCall("aten::sub", (X, Y), call(X, Y).outputs),
    ]
    distinct = {each.likeness for each in (call(X, Y), *others)}
    assert len(distinct) == 1 + len(others)


SPECS = st.builds(
    TensorSpec,
    st.sampled_from([(2,), (2, 2)]),
    st.just("float32"),
    st.sampled_from([None, (1,)]),
    st.sampled_from([None, 1, 2]),
    st.just("cpu"),
    st.sampled_from([0, 1]),
)
ARGS = st.lists(
    st.one_of(SPECS, st.integers(0, 1), st.lists(SPECS, max_size=2).map(tuple)), max_size=3
)


@given(ARGS, ARGS)
def test_it_is_equality_with_sharing(first: list[Arg], second: list[Arg]) -> None:
    a, b = (OpCall("aten::op", tuple(args)) for args in (first, second))
    alike = a == b and a.sharing == b.sharing
    assert (a.likeness == b.likeness) == alike


@given(ARGS, ARGS, st.sampled_from([None, ()]), st.sampled_from([None, ()]))
def test_the_form_is_equality(
    first: list[Arg], second: list[Arg], made: tuple[()] | None, other: tuple[()] | None
) -> None:
    a, b = OpCall("aten::op", tuple(first), made), OpCall("aten::op", tuple(second), other)
    assert (a.form == b.form) == (a == b)
