"""How ``claims.toml`` names a figure of a result file, and how it is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

_REDUCED: dict[str, Callable[[Any], Any]] = {
    "len": len, "min": min, "max": max, "median": median,
    "distinct": lambda values: len(set(values)),
}  # fmt: skip
_HOW = re.compile(r"(len\b|distinct\b|min\b|max\b|median\b|within [\d.]+)?\s*([.,+\d]\S*)?\s*(.*)")


def figure_at(result: Any, path: str) -> Any:
    """What stands at a path: keys and positions, joined by dots.

    ``*`` is each of a list, or of what keys name; ``[case.fault=gc]`` those of a list that have
    this value. ``one / other`` is their ratio: of two lists that of their medians, of a list and a
    number each of its.

    Raises:
        LookupError, TypeError, ValueError: there is nothing at the path.
    """
    if " / " in path:
        one, other = (figure_at(result, each) for each in path.split(" / "))
        if isinstance(one, list) and not isinstance(other, list):
            return [each / other for each in one]
        return _middle(one) / _middle(other)
    return _at(result, re.findall(r"\[[^\]]*\]|[^.]+", path))


def _middle(value: Any) -> float:
    return float(median(value) if isinstance(value, list) else value)


def _at(here: Any, path: Sequence[str]) -> Any:
    if not path:
        return here
    step, rest = path[0], path[1:]
    if step == "*":
        each_of = here.values() if isinstance(here, dict) else here
        return [_at(each, rest) for each in each_of]
    if step.startswith("["):
        at, _, value = step[1:-1].partition("=")
        return _at([each for each in here if str(_at(each, at.split("."))) == value], rest)
    if isinstance(here, list):
        return _at(here[int(step)], rest)
    # A key may hold dots itself: where it is not there alone, it goes on to the next dot.
    for end in range(1, len(path) + 1):
        if (key := ".".join(path[:end])) in here:
            return _at(here[key], path[end:])
    raise KeyError(step)


def as_written(value: Any, how: str) -> str:
    """A figure as the texts write it: ``.1%`` is "2.0 %", no format leaves it as it is.

    ``1e-9*.2f GB`` is in units of 1e9, with their name. Of a list, ``len``, ``distinct``, ``min``,
    ``max`` and ``median`` before the format are one number, as is ``within 0.1``, how many lie so
    near to 0; without one of these it is told from its least to its largest.
    """
    match = _HOW.fullmatch(how)
    assert match is not None
    reduced, how, unit = match[1] or "", match[2] or "", match[3]
    if reduced.startswith("within"):
        near = float(reduced.split()[1])
        value = sum(each is not None and abs(each) <= near for each in value)
    elif reduced:
        value = _REDUCED[reduced](value)
    values = [min(value), max(value)] if isinstance(value, list) else [value]
    written = " to ".join(_one(each, how) for each in values)
    return f"{written} {unit}".rstrip()


def _one(value: Any, how: str) -> str:
    if value is None:
        return "unknown"
    factor, times, rest = how.partition("*")
    if times:
        value, how = value * float(factor), rest
    return format(value, how).replace("%", " %")
