"""One function in the place of another, until gobrrr takes it away again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def put_in_place(home: Any, name: str, function: Callable[..., Any]) -> Callable[[], None]:
    """``function`` as ``home.name``, which there is; returns what puts the former one back.

    What somebody wrapped around it in between stays, and keeps what it wrapped.
    """
    former = getattr(home, name)
    setattr(home, name, function)

    def undo() -> None:
        if getattr(home, name) is function:
            setattr(home, name, former)

    return undo
