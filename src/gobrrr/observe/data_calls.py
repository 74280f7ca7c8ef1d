"""Calls that make a batch, which are no steps of their own."""

from __future__ import annotations

import sys
from types import FrameType


def in_data_loader() -> bool:
    """Whether this thread is inside a data loader's iterator: what runs there makes a batch."""
    import torch

    # ``_BaseDataLoaderIter.__next__``, which iterators of all kinds have in common.
    file = torch.utils.data.dataloader.__file__
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "__next__" and frame.f_code.co_filename == file:
            return True
        frame = frame.f_back
    return False
