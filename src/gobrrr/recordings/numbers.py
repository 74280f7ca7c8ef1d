"""Whatever identifies something in a trace, as whole numbers."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]


class Numbering(dict[Any, int]):
    """Distinct keys, numbered in order of appearance: ``numbering[key]`` is the number."""

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number

    def column(self, keys: Iterable[Any]) -> Int32:
        """The number of each key."""
        return np.array(array("i", list(map(self.__getitem__, keys))), np.int32)


class ThreadNumbering(dict[Any, int]):
    """(pid, tid) -> number. PyTorch 1.9 writes one thread as text here and as a number there."""

    def __init__(self) -> None:
        super().__init__()
        self.texts = Numbering()

    def __missing__(self, pair: tuple[Any, Any]) -> int:
        number = self[pair] = self.texts[str(pair[0]), str(pair[1])]
        return number

    def column(self, pids: Sequence[Any], tids: Sequence[Any]) -> Int32:
        """The number of each thread.

        Events stand thread by thread for long stretches: of numbers, each stretch is looked up
        once.
        """
        pid, tid = _whole_numbers(pids), _whole_numbers(tids)
        if pid is None or tid is None or not len(pid):
            return np.array([self[pair] for pair in zip(pids, tids)], np.int32)
        begins = np.append(True, (pid[1:] != pid[:-1]) | (tid[1:] != tid[:-1]))
        first = np.flatnonzero(begins).tolist()
        number = np.array([self[pids[row], tids[row]] for row in first], np.int32)
        column: Int32 = number[np.cumsum(begins) - 1]
        return column


def _whole_numbers(values: Sequence[Any]) -> Int64 | None:
    """The values, if all of them are whole numbers of 64 bits."""
    try:
        return np.array(array("q", values), np.int64)
    except (OverflowError, TypeError):
        return None


def identifiers(values: Sequence[Any], others: Numbering) -> Int64:
    """Identifiers as integers; -1 where absent. What is no integer gets a number of its own."""
    column = _whole_numbers(values)
    if column is not None:
        return column
    return np.array([_identifier(value, others) for value in values], np.int64)


def _identifier(value: Any, others: Numbering) -> int:
    if value is None:
        return -1
    if isinstance(value, str):
        try:
            value = int(value, 0)
        except ValueError:
            return -2 - others[value]
    if isinstance(value, float):
        if not value.is_integer():
            return -2 - others[value]
        value = int(value)
    return int(value) if -(2**63) <= value < 2**63 else -2 - others[value]


def sizes(values: Sequence[Any]) -> Int64:
    """Counts and byte sizes; -1 where absent or senseless."""
    column = _whole_numbers(values)
    if column is not None:
        return np.maximum(column, -1)
    return np.array(
        [
            int(v) if isinstance(v, (int, float)) and 0 <= v < 2**62 else -1
            for v in (float(v) if isinstance(v, str) and v.isdigit() else v for v in values)
        ],
        np.int64,
    )
