"""Where a step of the user's loop ends, found without touching the program.

In order of precedence: ``with gobrrr.step():`` blocks, ``step()`` calls of the user's own
``torch.profiler.profile``, optimizer steps, outermost ``nn.Module`` calls. A signal of higher
precedence that shows up later takes over.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from gobrrr.capture.cycle import CycleFinder
from gobrrr.capture.optimizer_hooks import around_optimizer_steps

# Sources of boundaries, weakest first.
MODULE, OPTIMIZER, PROFILER, EXPLICIT = "module", "optimizer", "profiler", "explicit"
PRECEDENCE = (MODULE, OPTIMIZER, PROFILER, EXPLICIT)

_active: list[StepWatcher] = []


@contextlib.contextmanager
def step() -> Iterator[None]:
    """Mark one step of your loop for ``gobrrr run``; does nothing outside it.

    Example:
        >>> for batch in loader:
        ...     with gobrrr.step():
        ...         train(batch)
    """
    yield
    for watcher in tuple(_active):
        watcher._ended(EXPLICIT, "explicit")


class StepWatcher:
    """Calls ``on_boundary(source, restarted)`` in the thread of the user's loop at each step's end.

    ``restarted`` is true when the meaning of a step has just changed (a stronger source, another
    cycle, another thread): what was measured before does not count.
    """

    def __init__(self, on_boundary: Callable[[str, bool], None]) -> None:
        self._on_boundary = on_boundary
        self._source = ""
        self._cycles = {MODULE: CycleFinder(), OPTIMIZER: CycleFinder(repeats=2)}
        self._known_cycle: tuple[Any, ...] = ()
        self._thread = 0
        self._undo: dict[str, Callable[[], None]] = {}
        self._restart_pending = False
        self._hooked: weakref.ref[Any] | None = None
        self.outermost: weakref.ref[Any] | None = None
        self.optimizers: weakref.WeakSet[Any] = weakref.WeakSet()

    def install(self) -> None:
        """Start watching. ``remove`` undoes everything."""
        _active.append(self)
        self._watch_optimizers()
        self._watch_profilers()
        self._watch_modules()

    def remove(self) -> None:
        """Stop watching and leave no hook behind."""
        if self in _active:
            _active.remove(self)
        for undo in self._undo.values():
            undo()
        self._undo.clear()

    # Sources

    def _watch_optimizers(self) -> None:
        def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
            key = id(optimizer)
            if self._known_cycle != (key,):
                self.optimizers.add(optimizer)
            self._ended(OPTIMIZER, key)

        self._undo[OPTIMIZER] = around_optimizer_steps(after=after_step)

    def _watch_profilers(self) -> None:
        from torch.profiler import profile

        original = profile.step

        def profiler_step(profiler: Any) -> None:
            original(profiler)
            self._ended(PROFILER, "profiler")

        profile.step = profiler_step

        def undo() -> None:
            profile.step = original

        self._undo[PROFILER] = undo

    def _watch_modules(self) -> None:
        # A wrapper around Module.__call__ rather than global hooks: those make every module of a
        # forward take the slow path (29 % on 161 modules) and unbalance on exceptions. It steps
        # aside while an outermost call runs, so that inner modules and torch.compile never see it,
        # and stays only until the step's outermost module is known; that instance gets a hook.
        import torch

        module_class = torch.nn.Module
        original = module_class.__call__

        def outermost_call(module: Any, *args: Any, **kwargs: Any) -> Any:
            # torch.compile(module) takes the bound __call__ of that moment, and then traces this.
            if torch.compiler.is_compiling():
                return original(module, *args, **kwargs)
            module_class.__call__ = original
            try:
                return original(module, *args, **kwargs)
            finally:
                if "module call" in self._undo:
                    module_class.__call__ = outermost_call
                    self._outermost_ended(module)

        module_class.__call__ = outermost_call

        def undo() -> None:
            module_class.__call__ = original

        self._undo["module call"] = undo

    # Boundaries

    def _outermost_ended(self, module: Any) -> None:
        self.outermost = weakref.ref(module)
        if self._source in ("", MODULE):
            self._ended(MODULE, id(module))
            if self._known_cycle and self._source == MODULE:
                self._hook_instance(module)

    def _hook_instance(self, module: Any) -> None:
        self._drop("module call")
        self._hooked = weakref.ref(module)

        def after_forward(called: Any, args: Any, result: Any) -> None:
            self._ended(MODULE, id(called))

        # A cycle of several modules is followed by its last one alone from here on.
        self._known_cycle = (id(module),)
        self._cycles[MODULE] = CycleFinder(repeats=1)
        self._cycles[MODULE].push(id(module))
        handle = module.register_forward_hook(after_forward, always_call=True)
        self._undo["module hook"] = handle.remove

    def _drop(self, name: str) -> None:
        undo = self._undo.pop(name, None)
        if undo is not None:
            undo()

    def _ended(self, source: str, event: Any) -> None:
        # The usual step of a script with one optimizer: a few microseconds that it would notice.
        alone = self._known_cycle == (event,) and source == self._source
        if alone and threading.get_ident() == self._thread and not self._restart_pending:
            self._on_boundary(source, False)
            return
        weaker = self._source and PRECEDENCE.index(source) < PRECEDENCE.index(self._source)
        if weaker:
            return
        if source != self._source:
            self._restart_pending = self._source != ""
            self._source = source
            self._known_cycle = ()
            if source != MODULE:
                self._drop("module call")
                self._drop("module hook")
        thread = threading.get_ident()
        if thread != self._thread:
            self._restart_pending = self._restart_pending or self._thread != 0
            self._thread = thread
        finder = self._cycles.get(source)
        if finder is not None:
            ends = finder.push(event)
            if finder.cycle != self._known_cycle:
                self._restart_pending = self._restart_pending or bool(self._known_cycle)
                self._known_cycle = finder.cycle
            if not ends:
                return
        restarted, self._restart_pending = self._restart_pending, False
        self._on_boundary(source, restarted)
