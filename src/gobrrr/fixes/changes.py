"""What fixes have changed in this process: a trial in which nothing was changed had no effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

_made: Counter[str] = Counter()


def changed(fix: str, times: int = 1) -> None:
    """A fix has changed something so many times: a tensor's layout, a call, a setting."""
    _made[fix] += times


def changes_of(fix: str) -> Callable[[], float]:
    """How often it has so far (``Fix.changes_made``)."""
    return lambda: float(_made[fix])
