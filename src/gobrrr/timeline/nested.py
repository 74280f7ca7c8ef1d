"""The tensors in what a program takes and returns: tuples, lists, dicts, and classes like them.

The walk is PyTorch's own, so that named tuples and the outputs of ``transformers`` are taken apart
as PyTorch's compiler takes them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def map_tensors(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same structure with each tensor changed."""
    import torch
    from torch.utils._pytree import tree_map_only

    return tree_map_only(torch.Tensor, change, value)


def nested_tensors(value: Any) -> list[Any]:
    """All tensors of the structure, in order."""
    import torch
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
