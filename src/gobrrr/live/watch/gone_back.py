"""Which calls of modules in eval mode a backward pass goes back through (attacks, distillation).

A hook on the nodes of autograd that a result ends in, for as long as they live; it changes nothing.
Calls that record no gradients get none.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

from gobrrr.live.watch.call_shapes import attributes
from gobrrr.timeline.step_kinds import CallKey

# Of a result: values that are looked at, and nodes that get a hook.
_MOST_VALUES, _MOST_NODES = 64, 8


class GoneBack:
    """Notes by the calls' keys."""

    def __init__(self) -> None:
        self._watched: set[CallKey] = set()
        self._gone: set[CallKey] = set()
        self._unknown: set[CallKey] = set()

    def watch(self, key: CallKey, result: Any) -> None:
        """A call has ended with a result; never raises."""
        if key.training or not key.gradients or key in self._gone or key in self._unknown:
            return
        try:
            nodes = [] if _compiles_backward() else _nodes_of(result)
            for node in nodes:
                node.register_hook(partial(_note, self._gone, key))
        except Exception:  # a class of the user's may do anything when asked
            nodes = []
        (self._watched if nodes else self._unknown).add(key)

    def through(self, key: CallKey) -> bool | None:
        """Whether a backward pass went through a result of such calls; ``None``: unknown."""
        if key in self._gone:
            return True
        return False if key in self._watched - self._unknown else None


def _note(gone: set[CallKey], key: CallKey, *_: Any) -> None:
    gone.add(key)


def _compiles_backward() -> bool:
    """Whether the backward pass is traced, and a hook with it."""
    return bool(getattr(sys.modules.get("torch._dynamo.config"), "compiled_autograd", False))


def _nodes_of(result: Any) -> list[Any]:
    import torch

    found: list[Any] = []
    left = deque([result])
    # Of a subclass of Tensor, or of a container, no code runs.
    with torch._C.DisableTorchFunctionSubclass():
        for _ in range(_MOST_VALUES):
            if not left or len(found) == _MOST_NODES:
                break
            value = left.popleft()
            if issubclass(type(value), torch.Tensor):
                found += [] if value.grad_fn is None else [value.grad_fn]
            else:
                left += islice(_held(value), _MOST_VALUES)
    return found


def _held(value: Any) -> Iterator[Any]:
    kind = type(value)
    if issubclass(kind, dict):
        return iter(dict.values(value))
    if issubclass(kind, list):
        return list.__iter__(value)
    if issubclass(kind, tuple):
        return tuple.__iter__(value)
    return iter(attributes(value).values())
