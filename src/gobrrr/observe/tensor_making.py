"""Tensors that a step makes of Python's objects: of what, at which line, and how long it takes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from gobrrr.observe.compiler_counters import graphs_compiled
from gobrrr.observe.program_facts import MadeFact
from gobrrr.observe.replacement import put_in_place
from gobrrr.observe.source_lines import user_line

_MAKERS = ("tensor", "as_tensor")
_MOST_DEPTH = 6


def watch_tensor_making(made: list[MadeFact]) -> Callable[[], None]:
    """Note each call of ``torch.tensor`` and ``torch.as_tensor``; returns what ends it.

    For a recorded step. Nothing is noted where something is compiled: what was traced is compiled
    anew for another function in the place of one that it calls.
    """
    import torch

    if graphs_compiled():
        return lambda: None
    undo = [put_in_place(torch, name, _noting(getattr(torch, name), made)) for name in _MAKERS]

    def remove() -> None:
        for each in undo:
            each()

    return remove


def _noting(original: Any, made: list[MadeFact]) -> Any:
    import torch

    process = os.getpid()

    def make(*args: Any, **kwargs: Any) -> Any:
        if os.getpid() != process:
            # A worker that was forked meanwhile has it for life.
            return original(*args, **kwargs)
        begin_ns = time.perf_counter_ns()
        result = original(*args, **kwargs)
        seconds = (time.perf_counter_ns() - begin_ns) * 1e-9
        line = user_line(sys._getframe(1)) or ""
        data: Any = args[0] if args else kwargs.get("data")
        kind = given(data)
        # ``type``: a subclass may do anything when asked.
        plain = type(data) in (torch.Tensor, torch.nn.Parameter)
        converts = plain and (data.dtype, data.device) != (result.dtype, result.device)
        made.append(MadeFact(original.__name__, line, kind, int(result.numel()), seconds, converts))
        return result

    return make


def given(data: Any) -> str:
    """``tensor``, ``array``, ``number``; of a list what is in it: ``list of arrays``."""
    import numpy as np
    import torch

    nested = ""
    for _ in range(_MOST_DEPTH):
        if type(data) not in (list, tuple):
            break
        nested = "list of "
        data = data[0] if data else 0
    kinds = ((torch.Tensor, "tensor"), (np.ndarray, "array"), ((bool, int, float), "number"))
    # ``type``: a user's object may do anything when asked for its class.
    kind = next((name for kind, name in kinds if issubclass(type(data), kind)), "object")
    return f"{nested}{kind}s" if nested else kind
