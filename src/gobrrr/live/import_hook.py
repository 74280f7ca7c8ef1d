"""Something to do as soon as the program has imported a module, which it may never do."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def when_imported(name: str, act: Callable[[], None]) -> Callable[[], None]:
    """Calls ``act`` once the module has run: at once where it has. Returns what takes that back.

    A program sets what a module reads (environment variables) before it imports it: whoever
    imported it earlier would change the program.
    """
    if name in sys.modules:
        act()
        return lambda: None
    finder = _Finder(name, act)
    sys.meta_path.insert(0, finder)
    return finder.leave


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module as the other finders do, and notices when it has run."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self._name, self._act = name, act
        self._inside = threading.local()

    def leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def has_run(self) -> None:
        """The module is there. What fails here is not the program's."""
        if self not in sys.meta_path:
            return
        self.leave()
        try:
            self._act()
        except Exception:
            traceback.print_exc()
            print(
                "gobrrr: this is a bug in gobrrr, not in the program, which runs on",
                file=sys.stderr,
            )

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name or getattr(self._inside, "asks", False):
            return None
        # A program may ask whether there is such a module, and import it later or never.
        self._inside.asks = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._inside.asks = False
        if spec is None or spec.loader is None:
            return None
        spec.loader = _Loader(spec.loader, self)
        return spec


class _Loader(importlib.abc.Loader):
    """Another loader, and what to do once it has run the module, which never sees this one."""

    def __init__(self, loader: Any, finder: _Finder) -> None:
        self._loader, self._finder = loader, finder

    def __getattr__(self, name: str) -> Any:
        # What else a loader may be asked for: the file, its source.
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._finder.has_run()
