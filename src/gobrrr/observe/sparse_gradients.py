"""Sparse stand-ins: the tensors that they hold, and the entries that torch's fake results lose."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

ALL_ENTRIES = (
    "a sparse tensor made from a dense one is assumed to have an entry for each element; "
    "--size-hint sets another number"
)

# Parts of the names of operators that make CSR or CSC.
_COMPRESSED = ("_to_sparse_csr", "_to_sparse_csc", "compressed_tensor", "csr_tensor", "csc_tensor")


def without_data(tensor: Any) -> Any:
    """A sparse COO tensor on the meta device with as many entries; call it outside all modes."""
    import torch

    return torch.sparse_coo_tensor(
        tensor._indices().to("meta"),
        tensor._values().detach().to("meta"),
        tensor.shape,
        is_coalesced=tensor.is_coalesced(),
        check_invariants=False,
    )


@lru_cache(maxsize=4096)
def makes_sparse(func: Any) -> bool:
    """Whether an operator makes a sparse tensor of dense ones."""
    name = func.name()
    return name.startswith("aten::_to_sparse") or any(part in name for part in _COMPRESSED)


def sparse_result(
    func: Any, args: Any, kwargs: Any, entries: int | None, assume: Callable[[str], None]
) -> Any:
    """The result of ``func`` of, or into, COO with all entries; ``None``: as torch has it.

    Rows that occur twice are counted twice where they would be merged: how many do depends on data.
    ``entries``: of a tensor that was dense; ``assume`` is told where that is not known.
    """
    import torch

    aten = torch.ops.aten
    if any(part in func.name() for part in _COMPRESSED):
        return _compressed_result(func, args, kwargs, entries, assume)
    if func is aten._to_sparse.default or func is aten._to_sparse.sparse_dim:
        dense = args[0]
        if dense.layout is not torch.strided:
            return None
        dims = args[1] if func is aten._to_sparse.sparse_dim else dense.dim()
        most = dense.shape[:dims].numel()
        if entries is None:
            assume(ALL_ENTRIES)
        count = most if entries is None else min(entries, most)
        return torch.sparse_coo_tensor(
            dense.new_empty((dims, count), dtype=torch.int64),
            dense.new_empty((count, *dense.shape[dims:])),
            dense.shape,
            is_coalesced=True,
            check_invariants=False,
        )
    if func in (aten.t.default, aten.transpose.int):
        return _transposed(args)
    if func in (aten.add.Tensor, aten.add_.Tensor, aten.sub.Tensor, aten.sub_.Tensor):
        return _dense_sum(func, args)
    if func in (
        aten.clone.default,
        aten.detach.default,
        aten.alias.default,
        aten._coalesce.default,
    ):
        pattern, values = args[0], args[0]._values()
    elif func is aten.sparse_mask.default:
        pattern = args[1]
        values = args[0].new_empty(pattern._values().shape)
    else:
        return None
    if pattern.layout is not torch.sparse_coo:
        return None
    return torch.sparse_coo_tensor(
        torch.empty_like(pattern._indices()),
        torch.empty_like(values),
        pattern.shape,
        is_coalesced=func is aten._coalesce.default or pattern.is_coalesced(),
        check_invariants=False,
    )


def _compressed_result(
    func: Any, args: Any, kwargs: Any, entries: int | None, assume: Callable[[str], None]
) -> Any:
    """CSR or CSC of a matrix, made of a dense one or of its parts; ``None``: as torch has it.

    Torch's own has no entries, or is refused: parts on the stand-ins' device, shell on another.
    """
    import torch

    name = func.name().removeprefix("aten::").partition(".")[0]
    if name in ("_to_sparse_csr", "_to_sparse_csc"):
        like, layout = args[0], getattr(torch, name.removeprefix("_to_"))
        most = like.numel()
        if entries is None:
            assume(ALL_ENTRIES)
        shape, count = like.shape, most if entries is None else min(entries, most)
        number, kept = torch.int64, like.dtype
        starts = shape[name.endswith("c")] + 1
    else:
        crow, _, like, *rest = args
        shape = kwargs.get("size", rest[0] if rest else None)
        layout = kwargs.get("layout") or getattr(torch, name.split("_tensor")[0].lstrip("_"), None)
        starts, count, number = crow.shape[-1], like.shape[0], crow.dtype
        kept = kwargs.get("dtype") or like.dtype
    plain = layout in (torch.sparse_csr, torch.sparse_csc) and shape is not None
    if not plain or len(shape) != 2 or like.dim() > 2 or not hasattr(like, "fake_mode"):
        return None
    return _compressed(like, layout, shape, (starts, number), (count, kept))


def _compressed(like: Any, layout: Any, shape: Any, starts: Any, entries: Any) -> Any:
    import torch
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils._python_dispatch import _disable_current_modes

    (rows, number), (count, kept) = starts, entries
    with _disable_current_modes():
        parts = [torch.empty(n, dtype=number, device="meta") for n in (rows, count)]
        values = torch.empty(count, dtype=kept, device="meta")
        made = torch.sparse_compressed_tensor(
            *parts, values, shape, layout=layout, check_invariants=False
        )
        return FakeTensor(like.fake_mode, made, torch.device("cpu"))


def _transposed(args: Any) -> Any:
    """With as many entries, now out of order; ``None``: as torch has it, of which none are left."""
    import torch

    sparse, *dims = args
    first, second = (n % sparse.dim() for n in dims or (0, sparse.dim() - 1))
    if sparse.layout is not torch.sparse_coo or max(first, second) >= sparse.sparse_dim():
        return None
    shape = list(sparse.shape)
    shape[first], shape[second] = shape[second], shape[first]
    return torch.sparse_coo_tensor(
        torch.empty_like(sparse._indices()),
        torch.empty_like(sparse._values()),
        shape,
        is_coalesced=first == second and sparse.is_coalesced(),
        check_invariants=False,
    )


def products_in_order() -> frozenset[Any]:
    """Products that on CUDA call ``coalesce()`` on COO (s_addmm_out_sparse_dense_cuda).

    ``mv`` is ``matmul`` with one column there (``mv_sparse``).
    """
    import torch

    aten = torch.ops.aten
    return frozenset({
        aten.mm.default, aten.mv.default, aten.addmm.default, aten._sparse_addmm.default,
    })  # fmt: skip


def coalesced(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with the entries of sparse ones in order."""
    import torch

    coo = torch.sparse_coo
    return tuple([arg.coalesce() if getattr(arg, "layout", None) is coo else arg for arg in args])


def _dense_sum(func: Any, args: Any) -> Any:
    """Of a dense tensor and a sparse one (an optimizer's update); ``None``: as torch has it.

    Its meta kernel is missing: torch would compute it on real tensors as large as the table.
    """
    import torch

    tensors = [arg for arg in args[:2] if isinstance(arg, torch.Tensor)]
    dense = [tensor for tensor in tensors if tensor.layout is torch.strided]
    same = len(tensors) == 2 and tensors[0].shape == tensors[1].shape
    if not same or len(dense) != 1 or args[0] is not dense[0]:
        return None
    if func._schema.is_mutable:
        return dense[0]
    return torch.empty_like(dense[0], dtype=torch.result_type(*tensors))


def parts_of(tensor: Any) -> tuple[Any, ...]:
    """The dense tensors of a sparse one, indices before values; none of other layouts."""
    import torch

    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return ()
