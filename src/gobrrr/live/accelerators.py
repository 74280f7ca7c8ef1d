"""What knows the kinds of accelerators, for whom a program that has none shall not pay."""

from __future__ import annotations

import sys
from types import ModuleType


def known_backends() -> ModuleType | None:
    """``gobrrr.devices.backends`` if it is there, or the program uses an accelerator.

    Else it is not brought into the program's heap.
    """
    if "gobrrr.devices.backends" not in sys.modules and not _accelerator_begun():
        return None
    from gobrrr.devices import backends

    return backends


def capturing() -> bool:
    """Whether the program is putting kernels into a graph: no step of it runs, and none ends."""
    backends = known_backends()
    return backends is not None and bool(backends.capturing())


def _accelerator_begun() -> bool:
    """Whether the program uses a kind of GPU that this PyTorch was built for.

    Without asking whether one is there: that would begin to use CUDA, which no process that the
    program forks later could then use.
    """
    torch = sys.modules.get("torch")
    accelerator = getattr(torch, "accelerator", None)
    kind = None if accelerator is None else accelerator.current_accelerator()
    if kind is None:
        return False
    begun = getattr(getattr(torch, kind.type, None), "is_initialized", None)
    return begun is None or bool(begun())
