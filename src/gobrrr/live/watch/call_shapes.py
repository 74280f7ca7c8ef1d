"""The shapes of the tensors that a module is given, wherever in its arguments they are.

Nothing of the program's own runs for it: containers and objects are looked into as Python stores
them, whatever their classes say about access.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Mapping
from types import FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

# Tensors of a call that are looked at; a structure with more is told apart by the first of them.
_MOST_TENSORS = 16
# Values that are looked at of one call: lists of numbers are long.
_MOST_VALUES = 1_000
# Objects that are looked into, and how deep: a batch is two or three of them inside each other.
_MOST_OBJECTS, _DEEPEST = 64, 6
_NO_DATA = (ModuleType, FunctionType, MethodType, type, weakref.ref, str, bytes, int, float)


def shapes_of(values: Iterable[Any]) -> tuple[list[tuple[int, ...]], bool]:
    """The shapes, those in lists and dictionaries first; does the first tensor hold integers?"""
    found = _Shapes()
    found.look_into(values)
    found.look_into_objects()
    return found.shapes, found.tokens


def attributes(owner: object) -> Mapping[str, Any]:
    """What an object holds, asked without running any code of its class."""
    try:
        held: Mapping[str, Any] = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return {}
    return held


class _Shapes:
    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self.tokens = False
        self._objects: list[tuple[Any, int]] = []
        self._seen: set[int] = set()
        self._looked_at = 0

    def look_into(self, values: Iterable[Any], depth: int = 0) -> None:
        import torch

        for value in values:
            kind = type(value)
            self._looked_at += 1
            if len(self.shapes) >= _MOST_TENSORS or depth > _DEEPEST:
                break
            if self._looked_at > _MOST_VALUES:
                break
            if issubclass(kind, torch.Tensor):
                # A nested tensor has no shape to give, and a subclass may do anything when asked.
                with contextlib.suppress(Exception):
                    self._tensor(value)
            elif issubclass(kind, tuple):
                self.look_into(tuple.__iter__(value), depth + 1)
            elif issubclass(kind, list):
                self.look_into(list.__iter__(value), depth + 1)
            elif issubclass(kind, dict):
                self.look_into(list(dict.values(value)), depth + 1)
            elif value is not None and not issubclass(kind, (*_NO_DATA, torch.nn.Module)):
                self._objects.append((value, depth))

    def look_into_objects(self) -> None:
        """Those that are no container of Python's: ``UserDict``, data classes, graphs."""
        self._looked_at = 0
        while self._objects and len(self._seen) < _MOST_OBJECTS:
            value, depth = self._objects.pop(0)
            kind = type(value)
            # What a model keeps of all that came before grows without the step being another one.
            keeps = any(base.__name__.endswith("Cache") for base in kind.__mro__)
            if id(value) in self._seen or keeps:
                continue
            self._seen.add(id(value))
            slots = [
                slot
                for base in kind.__mro__
                for name, slot in vars(base).items()
                if type(slot) is MemberDescriptorType and name != "__dict__"
            ]
            held = list(attributes(value).values())
            for slot in slots:
                with contextlib.suppress(AttributeError):
                    held.append(slot.__get__(value, kind))
            self.look_into(held, depth + 1)

    def _tensor(self, value: Any) -> None:
        if not self.shapes:
            self.tokens = not value.dtype.is_floating_point
        sizes = tuple(value.shape)
        # Nor has a jagged one: one of its sizes is a symbol.
        if all(type(n) is int for n in sizes):
            self.shapes.append(sizes)
