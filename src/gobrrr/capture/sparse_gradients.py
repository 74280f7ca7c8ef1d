"""Sparse gradients of stand-ins, with the entries that torch's fake results lose."""

from __future__ import annotations

from typing import Any


def sparse_result(func: Any, args: Any) -> Any:
    """The result of ``func`` on sparse tensors with all entries; ``None``: as torch has it.

    Rows that occur twice are counted twice where they would be merged: how many do depends on data.
    """
    import torch

    aten = torch.ops.aten
    if func is aten.clone.default or func is aten._coalesce.default:
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
