"""Walks of sparse tensors: entries put in order, and their products with dense matrices.

Sources: PyTorch's aten/src/ATen/native/sparse/cuda/SparseCUDATensor.cu (``_coalesce_sparse_cuda``)
and SparseCUDATensorMath.cu (``s_addmm_out_sparse_dense_cuda_worker``); thrust's
system/cuda/detail/sort.h and cub's ``DeviceMergeSort``.
"""

from __future__ import annotations

from math import ceil, log2

from gobrrr.prediction.kernels.walks.walk import ONE, Machine, Recipe, Walk
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.traffic import is_sparse, tensors_in
from gobrrr.work.traits import Passes

# Bytes of an index as COO keeps it, and as cuSPARSE takes it.
_LONG, _INT = 8, 4
# Keys and positions that a block of cub's merge sort orders on chip, of 8 bytes each: 256 threads,
# 17 items of 4 bytes for each (``DeviceMergeSortPolicy``, ``Nominal4BItemsToItems``).
_SORTED_ON_CHIP = 256 * (17 * 4 // _LONG)
# Of the bandwidth, as of the passes of a radix sort.
_SORTING = 0.6


class _Kernels:
    """Kernels one after the other; what lies between them the cache keeps half of its size."""

    def __init__(self, work: Work, machine: Machine) -> None:
        self.read, self.written = float(work.bytes_read or 0), float(work.bytes_written or 0)
        self.cache = machine.cache_bytes / 2
        self.walks: list[Walk] = []

    def add(
        self,
        reads: float,
        writes: float,
        *,
        first: float = 0.0,
        spread: float | None = None,
        efficiency: float = 1.0,
        arithmetic: float = 0.0,
    ) -> None:
        """One that reads and writes so many bytes.

        ``first``: of those read, the op's inputs that no kernel has read before; ``spread``: the
        bytes that the others are read from, where they are read more than once.
        """
        again = reads - first
        size = max(again if spread is None else spread, writes, 1.0)
        lost = max(0.0, 1.0 - self.cache / size)
        self.walks.append(
            Walk(
                reads / self.read,
                writes / self.written,
                arithmetic,
                efficiency,
                cold_reads=(first + lost * again) / self.read,
                cold_writes=lost * writes / self.written,
            )
        )


def coalesce(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """Entries of COO sorted by their place, those of one place added.

    The comparison is PyTorch's own (``LTOp``), so thrust merges rather than sorts by digits.
    """
    indices, values = tensors_in((call.args[0],))
    dims, n = indices.shape
    if not work.bytes_read or not work.bytes_written or n < 2:
        return ONE
    row, item = float(_LONG * n), float(values.numel * (values.item_size_bytes or 4))
    kernels = _Kernels(work, machine)
    # One number for each place; then two lists of positions.
    kernels.add(dims * row, row, first=dims * row)
    for _ in range(2):
        kernels.add(0.0, row)
    # Sorted on chip, then merged in twos; a small kernel before each finds where blocks begin.
    for _ in range(1 + max(0, ceil(log2(n / _SORTED_ON_CHIP)))):
        kernels.add(2 * row, 2 * row, efficiency=_SORTING)
    kernels.add(2 * row, 2 * row)
    kernels.add(2 * row + item, item, first=item, arithmetic=1.0)
    # ``copy_``, ``divide_`` and ``add_`` give the places of each dimension.
    for _ in range(dims if dims > 1 else 0):
        kernels.add(row, row)
        kernels.add(row, row)
        kernels.add(2 * row, row)
    return tuple(kernels.walks)


def product(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """Sparse times dense by cuSPARSE: a row of the dense matrix is fetched for each entry.

    Of two dense matrices it knows nothing: that is no walk.

    Of COO the row numbers become starts of rows, and the result is made in columns: filled,
    turned, multiplied, turned back.
    """
    (sparse,) = (arg for arg in call.args if is_sparse(arg))
    *_, values = tensors_in((sparse,))
    (out,) = call.outputs or ()
    dense = [arg for arg in call.args if isinstance(arg, TensorSpec)][-1]
    if not work.bytes_read or not work.bytes_written or not values.numel:
        return ONE
    written = float(out.numel * (out.item_size_bytes or 4))
    table = float(dense.unique_bytes or 0)
    # A vector is one column: ``mv`` of COO is ``mm`` of it (``mv_sparse``, native_functions.yaml).
    width = out.shape[-1] if len(out.shape) > 1 else 1
    fetched = float(values.numel * width * (dense.item_size_bytes or 4))
    entries = float(values.numel * (values.item_size_bytes or 4))
    kernels = _Kernels(work, machine)
    coo = isinstance(sparse, tuple) and sparse[0] == "sparse_coo"
    starts = float(_INT * (out.shape[0] + 1))
    if coo:
        row, short = float(_LONG * values.numel), float(_INT * values.numel)
        kernels.add(row, short, first=row)
        kernels.add(short, starts)
        kernels.add(row, short, first=row)
        # The addend is copied, or there is none: zeros.
        added = written if call.name.endswith(("::addmm", "::addmv")) else 0.0
        kernels.add(added, written, first=added)
        kernels.add(written, written, efficiency=machine.strided)
        places = short + starts
    else:
        places = float(sum(t.unique_bytes or 0 for t in tensors_in((sparse,)))) - entries
    first = min(table, fetched) + entries + (0.0 if coo else places)
    kernels.add(fetched + entries + places, written, first=first, spread=table, arithmetic=1.0)
    if coo:
        kernels.add(written, written, efficiency=machine.strided)
    return tuple(kernels.walks)


RECIPES: dict[Passes, Recipe] = {"coalesce": coalesce, "sparse_product": product}
