"""Hooks on the user's modules that no copy of them, no script and no file keeps.

A script saves its model, hands it to another process or copies it for an average of its weights
while it is watched. What it writes must load where there is no gobrrr, and a copy is not watched.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from gobrrr.observe.replacement import put_in_place

# Where a module holds its hooks, and by the same keys how each is called.
_HOOKS = _AFTER, _BEFORE = "_forward_hooks", "_forward_pre_hooks"
_TABLES = (
    *_HOOKS,
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks_with_kwargs",
)


def _nothing() -> None:
    """Nothing is to be put back."""


_hooked, _restore = 0, _nothing


class UnsavedHook:
    """A hook that is nothing in a copy of its module: one for all who watch the module's calls.

    ``_state`` leaves it out. A class that says itself what to save (``__getstate__``, as
    ``DistributedDataParallel``) keeps in its place a function of the standard library that takes
    anything and does nothing.
    """

    __slots__ = ("_calls", "_handle", "_runs")

    def __init__(self, register: Callable[[UnsavedHook], Any]) -> None:
        self._calls: tuple[Callable[..., None], ...] = ()
        self._runs = False
        self._handle = register(self)
        _leave_out(+1)

    def __call__(self, *given: Any) -> None:
        """As torch calls a hook; never changes what it is given."""
        self._runs = True
        try:
            for call in self._calls:
                call(*given)
        finally:
            # Where the module has raised, torch iterates over its very table of hooks: an entry
            # that has become idle stays until the next call.
            self._runs = sys.exc_info()[0] is not None
            self._leave_if_idle()
            self._runs = False

    def add(self, call: Callable[..., None]) -> None:
        """Call it too, from the next time on."""
        self._calls = (*self._calls, call)

    def remove(self, call: Callable[..., None]) -> None:
        """Call it no more."""
        self._calls = tuple(each for each in self._calls if each is not call)
        self._leave_if_idle()

    def _leave_if_idle(self) -> None:
        if not self._calls and not self._runs and self._handle is not None:
            self._handle.remove()
            self._handle = None
            _leave_out(-1)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")


def watch_module(
    module: Any,
    before: Callable[[Any, Any, Any], None] | None = None,
    after: Callable[[Any, Any, Any], None] | None = None,
) -> Callable[[], None]:
    """Call ``before(module, args, kwargs)`` and ``after(module, args, result)`` round its calls.

    ``after`` is called when the module raises too. Returns what ends it.

    Raises:
        RuntimeError: of a module of TorchScript, which takes no hooks.
        Exception: whatever a class of the user's does that has its own idea of hooks.
    """
    added: list[tuple[UnsavedHook, Callable[..., None]]] = []

    def undo() -> None:
        while added:
            hook, call = added.pop()
            hook.remove(call)

    def add(
        call: Callable[..., None] | None, table: str, register: Callable[[UnsavedHook], Any]
    ) -> None:
        if call is not None:
            hooks = getattr(module, table).values()
            hook = next((each for each in hooks if type(each) is UnsavedHook), None)
            hook = hook or UnsavedHook(register)
            hook.add(call)
            added.append((hook, call))

    try:
        add(before, _BEFORE, lambda hook: module.register_forward_pre_hook(hook, with_kwargs=True))
        add(after, _AFTER, lambda hook: module.register_forward_hook(hook, always_call=True))
    except Exception:
        undo()
        raise
    return undo


def _leave_out(more: int) -> None:
    """Modules leave our hooks out of their state and of their scripts as long as there are any.

    Where torch's modules do not say their state themselves every hook is the function that does
    nothing.
    """
    global _hooked, _restore
    import torch
    import torch.jit._recursive as scripting

    _hooked += more
    if not _hooked:
        _restore()
        _restore = _nothing
    elif _restore is _nothing:
        with contextlib.ExitStack() as undo:
            undo.callback(_wrap(torch.nn.Module, "__getstate__", _state_without_hooks))
            # TorchScript would compile them.
            undo.callback(_wrap(scripting, "create_script_module", _script_without_hooks))
            _restore = undo.pop_all().close


def _wrap(home: Any, name: str, around: Callable[..., Any]) -> Callable[[], None]:
    """``around(original, ...)`` in place of a function, if there is one; returns what undoes it."""
    original = vars(home).get(name)
    if original is None:
        return _nothing

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    return put_in_place(home, name, wrapped)


def _ours(hooks: Mapping[Any, Any]) -> list[Any]:
    return [key for key, hook in hooks.items() if type(hook) is UnsavedHook]


def _state_without_hooks(state_of: Callable[[Any], dict[str, Any]], module: Any) -> dict[str, Any]:
    """What a module saves, without our hooks."""
    state = state_of(module)
    ours = {key for name in _HOOKS for key in _ours(state.get(name, {}))}
    if not ours:
        return state
    cleaned = dict(state)
    for name in _TABLES:
        kept = [(key, value) for key, value in state[name].items() if key not in ours]
        cleaned[name] = type(state[name])(kept)
    return cleaned


def _script_without_hooks(create: Callable[..., Any], module: Any, *args: Any, **how: Any) -> Any:
    """A module's script, made while none of its parts has our hooks."""
    tables = [vars(part).get(name, {}) for part in module.modules() for name in _HOOKS]
    hidden = [(table, key, table.pop(key)) for table in tables for key in _ours(table)]
    try:
        return create(module, *args, **how)
    finally:
        for table, key, hook in hidden:
            table[key] = hook
