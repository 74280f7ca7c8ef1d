"""Which optimizers have a fused implementation, in this PyTorch and where their parameters are."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any


@cache
def refused_on_cuda(name: str) -> bool:
    """Whether ``torch.optim``'s class of this name refuses ``fused=True`` on CUDA.

    PyTorch 2.11 has a fused Adagrad for processors only. No table of its own says so, and its
    kernel is registered for CUDA too: the class asks its check to leave CUDA out.
    """
    import torch

    try:
        return "cuda_unsupported=True" in inspect.getsource(getattr(torch.optim, name))
    except (AttributeError, OSError, TypeError):  # no such class, or none with a source
        return False


def has_fused(optimizer: Any) -> bool:
    """Whether this optimizer, with its parameters where they are, takes ``fused=True``."""
    if "fused" not in optimizer.defaults:
        return False
    if not refused_on_cuda(type(optimizer).__name__):
        return True
    return not any(p.is_cuda for group in optimizer.param_groups for p in group["params"])
