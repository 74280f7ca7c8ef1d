"""Sequences that ``nn.TransformerEncoder`` packs by their mask, at their padded length.

In inference it turns a padded batch into a nested tensor, without what the mask leaves out. How
much that is depends on data; of the dense batch all is counted, and no mask is read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from gobrrr.symbolic.target.modules import Replacements

PADDED = (
    "in inference nn.TransformerEncoder leaves out what src_key_padding_mask masks: every sequence "
    "is predicted at its padded length"
)


@contextlib.contextmanager
def sequences_padded(assume: Callable[[str], None]) -> Iterator[None]:
    """Until the block ends packing and padding are copies; ``assume`` is told of it."""
    import torch

    pad = torch.Tensor.to_padded_tensor

    def packed(tensor: Any, *_: Any, **__: Any) -> Any:
        assume(PADDED)
        return tensor.clone()

    def padded(tensor: Any, padding: float, output_size: Any = None) -> Any:
        if tensor.is_nested:
            return pad(tensor, padding, output_size)
        return tensor.clone()

    put = Replacements()
    try:
        put(torch, "_nested_tensor_from_mask", packed)
        put(torch.Tensor, "to_padded_tensor", padded)
        yield
    finally:
        put.undo()
