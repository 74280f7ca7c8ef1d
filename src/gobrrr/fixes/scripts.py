"""Ways to change an unmodified script from outside: its outermost modules and its optimizers.

Installed in a fresh process before the script runs; each undoes itself when it is left.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gobrrr.fixes.changes import reached


@contextmanager
def before_first_call(change: Callable[[Any], None]) -> Iterator[None]:
    """``change(module)`` once for each outermost module with parameters, before its first call."""

    def call(module: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        return original(module, *args, **kwargs)

    with around_outermost_calls(call, change):
        yield


@contextmanager
def around_outermost_calls(
    call: Callable[[Any, Callable[..., Any], Any, Any], Any],
    first: Callable[[Any], None] = lambda module: None,
) -> Iterator[None]:
    """``call(module, original, args, kwargs)`` in place of each outermost module call.

    ``first(module)`` comes before the first one of each module with parameters.
    """
    import torch

    module_class = torch.nn.Module
    original = module_class.__call__
    seen: weakref.WeakSet[Any] = weakref.WeakSet()

    # ``self`` is the module: torch's profiler of Python frames takes it for one.
    def outermost_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Inner modules, and a compiler that reads the code of this one, see no wrapper.
        wrapped = module_class.__call__
        module_class.__call__ = original
        try:
            if self not in seen:
                seen.add(self)
                if next(self.parameters(), None) is not None:
                    reached(self)
                    first(self)
            return call(self, original, args, kwargs)
        finally:
            module_class.__call__ = wrapped

    module_class.__call__ = outermost_call
    try:
        yield
    finally:
        module_class.__call__ = original


@contextmanager
def before_optimizer_steps(change: Callable[[Any], None]) -> Iterator[None]:
    """``change(optimizer)`` before each step of each optimizer."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    def hook(optimizer: Any, args: Any, kwargs: Any) -> None:
        change(optimizer)

    handle = register_optimizer_step_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """``owner.name = value`` for as long as this is entered."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def compiles_by_method(module: Any) -> bool:
    """Whether ``module.compile()`` compiles it.

    The method is torch.nn's (Keras-like classes have one of their own), and ``forward`` is code
    outside torch.
    """
    import torch

    code = getattr(getattr(module, "forward", None), "__module__", None) or "torch"
    own = str(code).partition(".")[0] != "torch"
    return own and getattr(type(module), "compile", None) is torch.nn.Module.compile


def compile_in_place(module: Any, **arguments: Any) -> None:
    """Let calls of a module run what ``torch.compile(module)`` would run.

    ``module.compile()`` compiles nothing where ``forward`` is torch.nn's own (``Sequential``,
    ``Linear``): Dynamo passes such code over unless a frame outside torch calls it, as the one does
    that ``torch.compile`` puts around the module. Hooks on the module itself, such as those that
    tell where a step ends, stay outside of what is compiled, as with ``module.compile()``.
    """
    import torch

    if compiles_by_method(module):
        module.compile(**arguments)
        return
    call, forward, own = module._call_impl, module.forward, vars(module)
    compiled = torch.compile(lambda *args, **kwargs: forward(*args, **kwargs), **arguments)

    def run(*args: Any, **kwargs: Any) -> Any:
        # Only while it is called: a copy of the module, or what is saved of it, is not compiled.
        own["forward"] = compiled
        try:
            return call(*args, **kwargs)
        finally:
            own.pop("forward", None)

    module._compiled_call_impl = run
