"""Put a dispatch mode at the bottom of the stack, and take it from wherever it has got to.

A mode that starts in one frame and stops in another interleaves with ``with SomeMode():`` blocks
of the user's, and every exit of a mode pops whatever is on top. At the bottom, no exit of theirs
can pop ours. Modes above leave and enter again by the base class, so that the flags of
``torch.utils._python_dispatch`` (which torch.compile reads) nest as if ours had come first.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any


def enter_below(mode: Any) -> None:
    """Enter ``mode`` under the user's active modes of this thread."""
    with _set_aside(_user_modes()):
        mode.__enter__()
    _KEPT.watch()


def leave(mode: Any) -> bool:
    """Take ``mode`` off this thread's stack; false if it is not there."""
    modes = _user_modes()
    if not any(active is mode for active in modes):
        _KEPT.unwatch()
        return False
    position = next(i for i, active in enumerate(modes) if active is mode)
    with _set_aside(modes[position + 1 :]):
        mode.__exit__(None, None, None)
    _KEPT.unwatch()
    return True


class _KeptInInference:
    """Modes that begin or end inside ``torch.inference_mode()`` stay so when it ends.

    Its end puts back the thread's dispatch keys of its beginning (``c10::InferenceMode``), so that
    a mode which was entered inside would see nothing more, and one which was left inside would be
    called without being there. What is watched is undone with the last block that has to be seen.
    """

    def __init__(self) -> None:
        self._thread = 0
        self._original: Any = None
        self._wanted = False

    def watch(self) -> None:
        """From now on; in this thread."""
        from torch._C import _InferenceMode

        self._thread, self._wanted = threading.get_ident(), True
        if self._original is not None:
            return
        original = self._original = _InferenceMode.__exit__

        def ended(block: Any, *exc: Any) -> Any:
            result = original(block, *exc)
            self._block_ended()
            return result

        self._ended = ended
        setattr(_InferenceMode, "__exit__", ended)  # noqa: B010 - mypy takes no assignment

    def unwatch(self) -> None:
        """The mode was left: undone now, or when the block ends in which it was."""
        import torch

        self._wanted = False
        if not torch.is_inference_mode_enabled() or threading.get_ident() != self._thread:
            self._undo()

    def _block_ended(self) -> None:
        import torch

        if threading.get_ident() != self._thread:
            return
        any_mode = torch._C._len_torch_dispatch_stack() > 0
        for key in (torch._C.DispatchKey.Python, torch._C.DispatchKey.PythonTLSSnapshot):
            if torch._C._dispatch_tls_is_dispatch_key_included(key) != any_mode:
                torch._C._dispatch_tls_set_dispatch_key_included(key, any_mode)
        if not self._wanted and not torch.is_inference_mode_enabled():
            self._undo()

    def _undo(self) -> None:
        from torch._C import _InferenceMode

        # What somebody wrapped around it in between stays, and calls ours.
        if self._original is not None and _InferenceMode.__exit__ is self._ended:
            setattr(_InferenceMode, "__exit__", self._original)  # noqa: B010 - as above
            self._original = None


_KEPT = _KeptInInference()


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
