"""Programs that ask whether a tensor is fake are told that it is not.

A library that finds a fake tensor takes it that it is being traced, and leaves out what depends on
values (transformers builds every attention mask instead of passing ``is_causal``). The step to
predict is not traced: its values are known to the capture where they matter.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any

_NAME = "FakeTensor"
_INFORMED = ("torch", "gobrrr")


@contextlib.contextmanager
def hidden() -> Iterator[None]:
    """Until the block ends ``FakeTensor`` is another class to all modules but torch's and ours.

    It behaves as torch's own again afterwards, wherever it was imported meanwhile.
    """
    from torch import _subclasses
    from torch._subclasses import fake_tensor

    true_class = fake_tensor.FakeTensor
    capturing = True

    class Kind(type):
        def __getattr__(cls, name: str) -> Any:
            return getattr(true_class, name)

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return true_class(*args, **kwargs)

        def __instancecheck__(cls, value: Any) -> bool:
            return not capturing and isinstance(value, true_class)

        def __subclasscheck__(cls, kind: Any) -> bool:
            return not capturing and issubclass(kind, true_class)

    stranger = Kind(_NAME, (), {})

    def answer(module: Any) -> Any:
        asking = str(sys._getframe(1).f_globals.get("__name__", ""))
        return true_class if asking.partition(".")[0] in _INFORMED else stranger

    # A property of a module's class comes before what stands in the module.
    two_faced = type("Module", (types.ModuleType,), {_NAME: property(answer)})
    modules = (_subclasses, fake_tensor)
    kinds = [module.__class__ for module in modules]
    try:
        for module in modules:
            module.__class__ = two_faced
        yield
    finally:
        for module, kind in zip(modules, kinds):
            module.__class__ = kind
        capturing = False
