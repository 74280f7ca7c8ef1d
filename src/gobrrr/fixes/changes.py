"""What fixes have changed in this process: a trial in which nothing was changed had no effect."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

_made: Counter[str] = Counter()
_modules: weakref.WeakSet[Any] = weakref.WeakSet()


def changed(fix: str, times: int = 1) -> None:
    """A fix has changed something so many times: a tensor's layout, a call, a setting."""
    _made[fix] += times


def changes_of(fix: str) -> Callable[[], float]:
    """How often it has so far (``Fix.changes_made``)."""
    return lambda: float(_made[fix])


def reached(module: Any) -> None:
    """A fix that changes models has come upon this one."""
    _modules.add(module)


def modules_reached() -> int:
    """How many modules fixes have come upon in this process, of those that there still are."""
    return len(_modules)
