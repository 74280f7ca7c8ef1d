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


def test_a_vector_is_one_column() -> None:
    vector, out = TensorSpec((50,), "float32"), TensorSpec((10,), "float32")
    for sparse, places in ((CSR, 888), (COO, 1600)):
        work = work_of(OpCall("aten::mv", (sparse, vector), (out,)))
        assert work is not None
        # 2 * 100; the places and values of 100 entries, 50 elements of the vector
        assert (work.matrix_flops, work.vector_flops) == (0, 200)
        assert (work.bytes_read, work.bytes_written) == (places + 400 + 200, 40)
    added = work_of(OpCall("aten::addmv", (out, CSR, vector), (out,)))
    assert added is not None
    assert (added.vector_flops, added.bytes_read) == (200, 1528)


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


def test_element_wise_ops_touch_the_entries_and_what_stands_at_them() -> None:
    table = TensorSpec((1000, 8), "float32")
    rows = ("sparse_coo", TensorSpec((1, 50), "int64"), TensorSpec((50, 8), "float32"))
    added = work_of(OpCall("aten::add_", (table, rows, -0.1), (table,)))
    new = work_of(OpCall("aten::add", (table, rows, 1), (table,)))
    scaled = work_of(OpCall("aten::mul_", (rows, 2.0), rows[1:]))
    picked = work_of(OpCall("aten::mul", (rows, table), rows[1:]))
    assert added and new and scaled and picked
    # 50 * 8 values of 4 bytes are 1,600 and their indices 400; as much of the table at those rows,
    # where each is multiplied and added: not the table's 32,000.
    assert (added.vector_flops, added.bytes_read, added.bytes_written) == (800, 3600, 1600)
    assert (new.vector_flops, new.bytes_read, new.bytes_written) == (400, 34_000, 32_000)
    assert (scaled.vector_flops, scaled.bytes_read, scaled.bytes_written) == (400, 1600, 1600)
    assert (picked.vector_flops, picked.bytes_read, picked.bytes_written) == (400, 3600, 2000)
    # How many entries two of them have together depends on the data.
    assert work_of(OpCall("aten::add", (rows, rows, 1), rows[1:])) is None
    assert work_of(OpCall("aten::mul_", (rows, table), rows[1:])) is None
    assert not failed_formulas()
