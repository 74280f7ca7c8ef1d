"""Something to do as soon as the program has imported a module, which it may never do."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType


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

    def leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        self.leave()
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            # Not there yet: the program may try again with another path.
            sys.meta_path.insert(0, self)
            return None
        spec.loader = _Loader(spec.loader, self._act)
        return spec


class _Loader(importlib.abc.Loader):
    """Another loader, and what to do once it has run the module, which never sees this one."""

    def __init__(self, loader: importlib.abc.Loader, act: Callable[[], None]) -> None:
        self._loader, self._act = loader, act

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._act()
