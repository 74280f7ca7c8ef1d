"""Rows that constants may be fitted on, and the others: scored apart by every prediction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar


class Row(Protocol):
    """A measured row; ``fitted``: constants may be fitted on it."""

    @property
    def fitted(self) -> bool: ...


class Scored(Protocol):
    """A row with what was predicted of it."""

    @property
    def row(self) -> Row: ...


Item = TypeVar("Item", bound=Scored)


def halves(items: Iterable[Item]) -> dict[str, list[Item]]:
    """``fitted`` and ``unseen``, each in the order that they came in."""
    found: dict[str, list[Item]] = {"fitted": [], "unseen": []}
    for item in items:
        found["fitted" if item.row.fitted else "unseen"].append(item)
    return found
