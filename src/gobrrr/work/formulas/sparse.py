"""Sparse tensors: the entries that are there are read, multiplied and written, nothing else.

A sparse argument is a tuple of its layout and the dense tensors that it holds, indices before
values: ``(2, nnz)`` indices of COO, row starts and column indices of CSR. A trace has none of them,
and so no work.
"""

from __future__ import annotations

from math import prod

from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.registry import formula
from gobrrr.work.traffic import account, arithmetic_dtype, is_sparse, tensor_at, tensors_in
from gobrrr.work.traits import Role, describe


def _parts(call: OpCall, index: int) -> list[TensorSpec]:
    """The tensors of a sparse argument; none if it is dense or was not recorded."""
    arg = call.args[index] if index < len(call.args) else None
    return tensors_in((arg,)) if is_sparse(arg) else []


def sparse_product(call: OpCall) -> Work | None:
    """``mm``, ``_sparse_mm (a, b)``, ``addmm``, ``_sparse_addmm (self, a, b)``, one side sparse.

    ``mv``, ``addmv``: a vector is one column. Each entry multiplies a row of the dense side, which
    is read as often as it is named, at most whole. cuSPARSE multiplies on the vector unit. Two
    sparse sides: the entries of the result depend on the data.
    """
    first = len([arg for arg in call.args[:3] if isinstance(arg, (TensorSpec, tuple))]) - 2
    sides = [(_parts(call, at), tensor_at(call, at)) for at in (first, first + 1)]
    entries = next((parts for parts, _ in sides if parts), [])
    dense = next((tensor for _, tensor in sides if tensor is not None), None)
    if not entries or dense is None or not call.outputs:
        return None
    sparse_is_left = bool(sides[0][0])
    # Of a vector on the right: 1.
    width = prod(dense.shape[1:]) if sparse_is_left else dense.shape[0]
    products = entries[-1].numel * width
    gathered = TensorSpec((min(products, dense.unique_elements),), dense.dtype)
    addend = [tensor_at(call, 0)] if first > 0 else []
    return account(
        [*entries, gathered, *(spec for spec in addend if spec is not None)],
        list(call.outputs),
        vector=2.0 * products,
        dtype=arithmetic_dtype(dense.dtype),
        op_class="contraction",
    )


@formula("aten::_sparse_mm", "aten::_sparse_addmm", fusion=Role.EXTERN, passes="sparse_product")
def sparse_mm(call: OpCall) -> Work | None:
    """``(a, b)``, ``(self, a, b, ...)``."""
    return sparse_product(call)


@formula("aten::_to_sparse", "aten::_to_sparse_csr", "aten::_to_sparse_csc", fusion=Role.EXTERN)
def to_sparse(call: OpCall) -> Work | None:
    """``(self, ...)`` dense: read to find the entries, which are written with their indices."""
    x = tensor_at(call, 0)
    if x is None or not call.outputs:
        return None
    return account([x], list(call.outputs), dtype=arithmetic_dtype(x.dtype), op_class="movement")


@formula("aten::sparse_mask", fusion=Role.EXTERN)
def sparse_mask(call: OpCall) -> Work | None:
    """``(self, mask)``: of a dense tensor the elements that a sparse one has."""
    x, mask = tensor_at(call, 0), _parts(call, 1)
    if x is None or not mask:
        return None
    picked = TensorSpec(mask[-1].shape, x.dtype)
    reads = [picked, *mask[:-1]]
    out = list(call.outputs or (picked,))
    return account(reads, out, dtype=arithmetic_dtype(x.dtype), op_class="movement")


@formula("aten::_coalesce", fusion=Role.EXTERN, passes="coalesce")
def coalesce(call: OpCall) -> Work | None:
    """``(self)``: entries sorted by index, those of one index added."""
    parts = _parts(call, 0)
    if not parts:
        return None
    values = parts[-1]
    out = list(call.outputs or parts)
    return account(
        parts, out, vector=float(values.numel), dtype=arithmetic_dtype(values.dtype),
        op_class="other",
    )  # fmt: skip


describe("mm addmm addmm_ mv addmv addmv_", passes="sparse_product")
