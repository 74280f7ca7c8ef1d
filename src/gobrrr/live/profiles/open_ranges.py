"""Ranges (``torch.profiler.record_function``) that the program has open when a profiler ends."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from gobrrr.observe.replacement import put_in_place


def end_with_profiler() -> Callable[[], None]:
    """From here on ranges that begin are written down; returns what ends those still open.

    To be called just before the profiler is stopped. torch writes the end of a range into the
    memory of the profiler that saw it begin, if any profiler runs by then; that memory is freed
    when the first one stops, and the process dies of it. A step may well end inside a range: an
    optimizer's is around its hooks.
    """
    from torch.autograd.profiler import record_function

    enter, leave = record_function.__enter__, record_function.__exit__
    thread = threading.get_ident()
    # By identity: ranges may compare as they like.
    opened: dict[int, Any] = {}
    running = True

    @functools.wraps(enter)
    def enters(begun: Any) -> Any:
        entered = enter(begun)
        # torch's profiler on a processor sees one thread.
        if running and threading.get_ident() == thread:
            opened[id(begun)] = begun
        return entered

    @functools.wraps(leave)
    def leaves(begun: Any, *why: Any) -> Any:
        # One that waits for a future ends with it.
        if begun.run_callbacks_on_exit:
            opened.pop(id(begun), None)
        return leave(begun, *why)

    undo = [
        put_in_place(record_function, "__enter__", enters),
        put_in_place(record_function, "__exit__", leaves),
    ]

    def end() -> None:
        nonlocal running
        running = False
        for each in undo:
            each()
        # The inner ones first.
        for begun in reversed(opened.values()):
            _end(begun.record)
        opened.clear()

    return end


def _end(record: Any) -> None:
    """End a range in its profiler; that the program ends it again has no effect."""
    import torch

    with torch._C.DisableTorchFunctionSubclass():
        torch.ops.profiler._record_function_exit._RecordFunction(record)
