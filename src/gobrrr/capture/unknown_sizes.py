"""Results whose size depends on data, with a size that the user gave as an example."""

from __future__ import annotations

from typing import Any


def sized_by_hint(func: Any, args: Any, size: int) -> Any:
    """The result of ``func`` with ``size`` entries; ``None`` if it is not one of those known."""
    import torch

    aten = torch.ops.aten
    first = args[0]
    whole = torch.int64
    if func is aten.nonzero.default:
        return first.new_empty((size, first.dim()), dtype=whole)
    if func in (aten.masked_select.default, aten.repeat_interleave.Tensor):
        return first.new_empty((size,))
    if func is aten.bincount.default:
        return first.new_empty((size,), dtype=whole)
    if func is aten._unique2.default:
        return (
            first.new_empty((size,)),
            torch.empty_like(first, dtype=whole),
            first.new_empty((size,), dtype=whole),
        )
    if func is aten.index.Tensor:
        return _indexed(first, args[1], size)
    return None


def _indexed(tensor: Any, indices: Any, size: int) -> Any:
    """``tensor[mask]``: one mask stands for as many dimensions as it has."""
    import torch

    masks = [item for item in indices if item is not None]
    if len(masks) != 1 or masks[0].dtype is not torch.bool:
        return None
    lead = next(i for i, item in enumerate(indices) if item is not None)
    rest = lead + masks[0].dim()
    return tensor.new_empty((*tensor.shape[:lead], size, *tensor.shape[rest:]))
