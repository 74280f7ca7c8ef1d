"""Ranges around the calls in which a thread sleeps until other ranks have come.

They exist while steps are profiled and no longer: a range costs a fraction of a microsecond, a wait
without one would pass for Python.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gobrrr.observe.joined_group import joined_distributed
from gobrrr.observe.replacement import put_in_place

# A call that waits for a collective.
WAIT_RANGE = "wait for collective"
# The whole run of autograd's engine: what no event covers at its end is C++ that waits (DDP).
BACKWARD_RANGE = "gobrrr::backward"


def ranges_around_waits() -> Callable[[], None]:
    """Puts them there, if this process has joined a process group; returns what takes them away."""
    distributed = joined_distributed()
    if distributed is None:
        return _nothing
    import torch

    work = getattr(getattr(torch._C, "_distributed_c10d", None), "Work", None)
    undo = [
        _wrapped(owner, name, title)
        for owner, name, title in (
            (work, "wait", WAIT_RANGE),
            (distributed, "_broadcast_coalesced", WAIT_RANGE),
            (torch.autograd, "_engine_run_backward", BACKWARD_RANGE),
        )
        if hasattr(owner, name)
    ]

    def take_away() -> None:
        for each in undo:
            each()

    return take_away


def _nothing() -> None:
    """There were no ranges."""


def _wrapped(owner: Any, name: str, title: str) -> Callable[[], None]:
    import torch

    original = getattr(owner, name)
    record = torch._C._profiler._RecordFunctionFast

    @functools.wraps(original)
    def ranged(*args: Any, **kwargs: Any) -> Any:
        with record(title):
            return original(*args, **kwargs)

    return put_in_place(owner, name, ranged)
