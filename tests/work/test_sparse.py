"""Work of sparse operands: the entries that are there, not the elements that could be."""

from __future__ import annotations

from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work import work_of
from gobrrr.work.registry import failed_formulas

COO = ("sparse_coo", TensorSpec((2, 100), "int64"), TensorSpec((100,), "float32"))
CSR = (
    "sparse_csr", TensorSpec((11,), "int64"), TensorSpec((100,), "int64"),
    TensorSpec((100,), "float32"),
)  # fmt: skip
DENSE, OUT = TensorSpec((50, 8), "float32"), TensorSpec((10, 8), "float32")


def test_entries_times_a_dense_matrix() -> None:
    work = work_of(OpCall("aten::mm", (CSR, DENSE), (OUT,)))
    assert work is not None
    # 2 * 100 * 8 = 1,600
    assert (work.matrix_flops, work.vector_flops) == (0, 1600)
    # 11 * 8 + 100 * 8 + 100 * 4 = 1,288 of entries, 50 * 8 * 4 = 1,600 of the dense side
    assert (work.bytes_read, work.bytes_written) == (2888, 320)


def test_an_addend_is_read_too() -> None:
    work = work_of(OpCall("aten::_sparse_addmm", (OUT, COO, DENSE, 1, 1), (OUT,)))
    assert work is not None
    # 320 + 2 * 100 * 8 + 100 * 4 + 1,600
    assert (work.vector_flops, work.bytes_read) == (1600, 3920)


def test_a_dense_side_on_the_left() -> None:
    left = TensorSpec((8, 10), "float32")
    work = work_of(OpCall("aten::mm", (left, CSR), (TensorSpec((8, 50), "float32"),)))
    assert work is not None
    assert work.vector_flops == 1600


def test_what_sparse_formulas_do_not_know_is_unknown_and_no_defect() -> None:
    assert work_of(OpCall("aten::mm", (COO, CSR), (OUT,))) is None
    assert work_of(OpCall("aten::addmm", (COO, DENSE, OUT), (OUT,))) is None
    assert work_of(OpCall("aten::softmax", (COO, 1, None), (OUT,))) is None
    assert not failed_formulas()


def test_between_dense_and_sparse() -> None:
    x = TensorSpec((10, 50), "float32")
    made = work_of(OpCall("aten::_to_sparse", (x,), COO[1:]))
    back = work_of(OpCall("aten::_to_dense", (COO,), (x,)))
    assert made is not None and back is not None
    # 2,000 bytes of elements; 100 entries of 2 * 8 + 4
    assert (made.bytes_read, made.bytes_written) == (2000, 2000)
    assert (back.bytes_read, back.bytes_written) == (2000, 2000)
