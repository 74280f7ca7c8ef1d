"""Attention written in ``einsum``: which dimension is what, so that it becomes products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Orders:
    """How to permute what an attention is made of to (batch..., tokens, width), and its result."""

    query: tuple[int, ...]
    key: tuple[int, ...]
    value: tuple[int, ...]
    result: tuple[int, ...]


def operands(node: Any) -> tuple[str, Any, Any] | None:
    """(equation, first, second) of an einsum of two tensors; ``None`` for any other."""
    equation, *tensors = node.args
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = list(tensors[0])
    if not isinstance(equation, str) or len(tensors) != 2 or "->" not in equation:
        return None
    return equation.replace(" ", ""), tensors[0], tensors[1]


def orders_of(scores: str, mixing: str) -> Orders | None:
    """From the equations of scores = f(q, k) and result = f(weights, v).

    >>> orders_of("bihd,bjhd->bhij", "bhij,bjhd->bihd").query
    (0, 2, 1, 3)
    >>> orders_of("id,jd->ij", "ij,jd->id").result
    (0, 1)
    >>> orders_of("bihd,bjhd->bhij", "bhji,bjhd->bihd") is None
    True

    ``None`` where that is no attention whose weights run over the keys in the last dimension.
    """
    first, second = _parts(scores), _parts(mixing)
    if first is None or second is None:
        return None
    (query, key, made), (weights, value, result) = first, second
    if len(made) != len(weights) or len(made) < 2:
        return None
    width = _only(set(query) & set(key) - set(made))
    depth = _only(set(value) & set(result) - set(weights))
    if width is None or depth is None or weights[-1] in result or weights[-1] not in value:
        return None
    found = (
        _order(query, made[:-2] + made[-2] + width), _order(key, made[:-2] + made[-1] + width),
        _order(value, weights[:-2] + weights[-1] + depth),
        _order(weights[:-2] + weights[-2] + depth, result),
    )  # fmt: skip
    # The weights have to be the scores, dimension by dimension: names may differ, sizes not.
    return None if None in found else Orders(*found)  # type: ignore[arg-type]


def _parts(equation: str) -> tuple[str, str, str] | None:
    inputs, _, made = equation.partition("->")
    first, comma, second = inputs.partition(",")
    each = (first, second, made)
    plain = all(part.isalpha() and len(set(part)) == len(part) for part in each)
    return each if comma and plain else None


def _only(letters: set[str]) -> str | None:
    return next(iter(letters)) if len(letters) == 1 else None


def _order(given: str, wanted: str) -> tuple[int, ...] | None:
    return tuple(given.index(x) for x in wanted) if sorted(given) == sorted(wanted) else None
