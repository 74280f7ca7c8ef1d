"""The modules that a step of the user's own can reach: in its closure, its globals, its object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gobrrr.observe.snapshot import Snapshot


def reached_modules(*roots: Any) -> list[Any]:
    """The outermost modules among what can be reached, in the order of the walk."""
    found = _Modules(*roots).modules
    inner = {id(part) for module in found for part in module.modules() if part is not module}
    return [module for module in found if id(module) not in inner]


class _Modules(Snapshot):
    """The walk of a snapshot, which takes none."""

    def __init__(self, *roots: Any) -> None:
        self.modules: list[Any] = []
        super().__init__(*roots)

    def _visit(self, value: Any, path: str) -> Iterator[tuple[Any, str]]:
        import torch

        if not isinstance(value, torch.nn.Module):
            yield from super()._visit(value, path)
        elif id(value) not in self._seen:
            self._seen.add(id(value))
            self.modules.append(value)

    def _take_tensor(self, tensor: Any) -> None:
        """Nothing of it is kept."""
