"""Kernels of sparse tensors."""

from __future__ import annotations

import pytest

from gobrrr.prediction.kernels.kernel_model import KernelEstimate, estimate_op
from gobrrr.prediction.kernels.target import target_device
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work import work_of
from prediction.kernels.toy_device import aten, spec

H100 = target_device("H100-SXM")


def _estimate(call: OpCall) -> KernelEstimate:
    work = work_of(call)
    assert work is not None
    found = estimate_op(call, work, H100)
    assert found is not None
    return found


def _coo(entries: int, dims: int = 2) -> tuple[str, TensorSpec, TensorSpec]:
    return ("sparse_coo", spec(dims, entries, dtype="int64"), spec(entries))


def _csr(rows: int, entries: int) -> tuple[str, TensorSpec, TensorSpec, TensorSpec]:
    starts, columns = spec(rows + 1, dtype="int64"), spec(entries, dtype="int64")
    return ("sparse_csr", starts, columns, spec(entries))


def _product(sparse: tuple[object, ...], rows: int, width: int) -> KernelEstimate:
    dense, out = spec(rows, width), spec(rows, width)
    return _estimate(OpCall("aten::mm", (sparse, dense), (out,)))  # type: ignore[arg-type]


def test_entries_are_put_in_order_by_merging() -> None:
    def found(entries: int) -> KernelEstimate:
        coo = _coo(entries)
        return _estimate(OpCall("aten::_coalesce", (coo,), coo[1:]))

    # On chip 2,048 are sorted: of twice as many two halves are merged, by one kernel more.
    assert found(4096).kernels == found(2048).kernels + 1
    # 16 M entries in 14 rounds, each of which reads and writes 16 bytes of all.
    n = 1 << 24
    assert found(n).time_s > 14 * 32 * n / 3.35e12
    assert found(1).kernels == 1
    # One dimension has no places to be divided into two.
    flat = _coo(4096, 1)
    assert _estimate(OpCall("aten::_coalesce", (flat,), flat[1:])).kernels == 7


@pytest.mark.parametrize("csr", [False, True])
def test_a_product_fetches_a_row_for_each_entry(csr: bool) -> None:
    rows, width = 1 << 20, 64
    few, many = 1 << 20, 1 << 24
    sparse = [_csr(rows, n) if csr else _coo(n) for n in (few, many)]
    times = [_product(one, rows, width).time_s for one in sparse]
    # The matrix is larger than the cache: what is fetched again comes mostly from memory.
    assert times[1] - times[0] > 0.5 * (many - few) * width * 4 / 3.35e12


def test_a_product_of_coo_makes_columns_and_turns_them() -> None:
    rows, width, entries = 1 << 16, 64, 1 << 18
    assert _product(_csr(rows, entries), rows, width).kernels == 1
    assert _product(_coo(entries), rows, width).kernels == 7


@pytest.mark.parametrize("csr", [False, True])
def test_a_vector_is_one_column(csr: bool) -> None:
    rows, entries = 1 << 16, 1 << 22
    sparse = _csr(rows, entries) if csr else _coo(entries)
    of_vector = _estimate(OpCall("aten::mv", (sparse, spec(rows)), (spec(rows),)))
    of_column = _product(sparse, rows, 1)
    assert of_vector.time_s == pytest.approx(of_column.time_s)
    assert of_vector.kernels == of_column.kernels


def test_dense_products_are_as_they_were() -> None:
    call = aten("mm", spec(64, 64), spec(64, 64), outputs=(spec(64, 64),))
    assert _estimate(call).kernels == 1
