"""Put a dispatch mode at the bottom of the stack, and take it from wherever it has got to.

A mode that starts in one frame and stops in another interleaves with ``with SomeMode():`` blocks
of the user's, and every exit of a mode pops whatever is on top. At the bottom, no exit of theirs
can pop ours. Modes above leave and enter again by the base class, so that the flags of
``torch.utils._python_dispatch`` (which torch.compile reads) nest as if ours had come first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


def enter_below(mode: Any) -> None:
    """Enter ``mode`` under the user's active modes of this thread."""
    with _set_aside(_user_modes()):
        mode.__enter__()


def leave(mode: Any) -> bool:
    """Take ``mode`` off this thread's stack; false if it is not there."""
    modes = _user_modes()
    if not any(active is mode for active in modes):
        return False
    position = next(i for i, active in enumerate(modes) if active is mode)
    with _set_aside(modes[position + 1 :]):
        mode.__exit__(None, None, None)
    return True


def _user_modes() -> list[Any]:
    # Modes with a key (fake tensors, proxies, functionalization) have slots of their own below.
    import torch

    count = torch._C._len_torch_dispatch_stack()
    stack = [torch._C._get_dispatch_stack_at(i) for i in range(count)]
    return [mode for mode in stack if getattr(mode, "_mode_key", None) is None]


@contextlib.contextmanager
def _set_aside(modes: list[Any]) -> Iterator[None]:
    from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode

    entered = []
    for mode in reversed(modes):
        # A mode that was pushed without __enter__ has saved no flags.
        entered.append(bool(getattr(mode, "old_dispatch_mode_flags", None)))
        if entered[-1]:
            TorchDispatchMode.__exit__(mode, None, None, None)
        else:
            _pop_mode()
    try:
        yield
    finally:
        for mode in modes:
            if entered.pop():
                TorchDispatchMode.__enter__(mode)
            else:
                _push_mode(mode)
