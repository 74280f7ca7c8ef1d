"""Whatever a trace recorded, a formula answers with non-negative work or with unknown."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work import formula_names, work_of
from gobrrr.work.registry import forget_failures

DTYPES = st.sampled_from(["float32", "bfloat16", "int64", "bool", "complex64", ""])
SHAPES = st.lists(st.integers(0, 5), max_size=5).map(tuple)
TENSORS = st.builds(TensorSpec, SHAPES, DTYPES)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-3, 9), st.floats(-2, 2), st.text("ab"))
LISTS = st.lists(st.one_of(TENSORS, SCALARS), max_size=4).map(tuple)
ARGUMENTS = st.lists(st.one_of(TENSORS, TENSORS, SCALARS, LISTS), max_size=16).map(tuple)
OUTPUTS = st.one_of(st.none(), st.lists(TENSORS, max_size=3).map(tuple))


@settings(max_examples=25)
@given(ARGUMENTS, OUTPUTS)
def test_no_arguments_make_a_formula_fail(
    args: tuple, outputs: tuple[TensorSpec, ...] | None
) -> None:
    for name in sorted(formula_names()):
        work = work_of(OpCall(name, args, outputs))
        if work is None:
            continue
        for amount in (work.matrix_flops, work.vector_flops, work.bytes_read, work.bytes_written,
                       work.unique_bytes, work.special, work.fresh_bytes):  # fmt: skip
            assert amount is None or amount >= 0, (name, work)
    # Nobody calls an operator like that: here a formula may fail, and says that it cannot tell.
    forget_failures()
