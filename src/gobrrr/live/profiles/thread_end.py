"""Something to be done in a thread at its very end: what has begun there may have to end there."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

_here = threading.local()


def at_end_of_thread(act: Callable[[], None]) -> Callable[[], None]:
    """``act`` is called in the calling thread when that ends; returns what revokes it."""
    last = _Last(act)
    _here.__dict__.setdefault("last", []).append(last)
    # The thread alone keeps it alive.
    kept = weakref.ref(last)

    def revoke() -> None:
        last = kept()
        if last is not None:
            last.act = None

    return revoke


class _Last:
    """Acts when it is deleted: a thread's own variables are, by the thread itself as it ends."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act: Callable[[], None] | None = act

    def __del__(self) -> None:
        act, self.act = self.act, None
        if act is not None:
            act()
