"""Whether this process has joined a process group, asked without loading torch for it."""

from __future__ import annotations

import sys
from typing import Any


def joined_distributed() -> Any:
    """``torch.distributed``, if this process has joined a process group there; else ``None``.

    Nothing is imported: a process that has not loaded torch has joined none.
    """
    distributed: Any = sys.modules.get("torch.distributed")
    # Missing in a torch without it, and while another thread is still importing it.
    joined = getattr(distributed, "is_initialized", None)
    return distributed if joined is not None and joined() else None
