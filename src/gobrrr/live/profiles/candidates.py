"""Which events of a profiled step are the ops that a recorder saw: the outermost, below all layers.

``torch.func`` puts layers above an operator (one for each ``vmap``, ``grad``, ``jvp``): each is an
event of its own around what it makes of the call, which may be another operator. A recorder sees
what is below them.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gobrrr.timeline.align import match, recorded_as
from gobrrr.timeline.data import Int64
from gobrrr.timeline.nesting import inherited_minimum, nearest, parents

if TYPE_CHECKING:
    # For its type alone: reading a trace has no use for what records one.
    from gobrrr.live.profiles.profile import RawEvents

# Around what a tensor subclass (``DTensor``, a result that is awaited) makes of an operator.
_OF_SUBCLASS = "PythonSubclass"
# What an operator on a derivative that is zero and was never written makes first, in its own event
# (``ZeroTensor``): it works on them then.
_ZEROS = {"aten::zeros", "aten::expand"}
# The name of an event, and whether what it calls is called again by a layer.
Kind = tuple[str, bool]


class Candidates:
    """The events that a recorder of these names would have seen.

    These are the outermost events with a recorded name in the step's thread: an ``aten::copy_``
    inside an ``aten::_to_copy`` is part of it, a composite such as ``aten::linear`` is not seen.
    Nor is an operator on a tensor subclass: what the subclass makes of it is, a wait for a
    collective among it. Nor are the layers of ``torch.func``.
    """

    def __init__(self, step: RawEvents, recorded_names: set[str]) -> None:
        self._step = step
        wanted_names = np.array(
            [name in recorded_names or recorded_as(name) in recorded_names for name in step.names],
            dtype=bool,
        )
        self._parent = parents(step.start_ns, step.end_ns, step.thread)
        self._layer = _layers(step, self._parent)
        self._wanted = np.empty(0, bool)
        if len(step):
            self._wanted = wanted_names[step.name] & (step.thread == 0) & ~step.annotation
            subclass = np.array([name == _OF_SUBCLASS for name in step.names], bool)[step.name]
            handed_over = self._parent[subclass]
            self._wanted[handed_over[handed_over >= 0]] = False
            self._wanted[self._layer] = False
        again = _again(step, self._parent)
        repeated = np.zeros(len(step), bool)
        repeated[self._parent[again]] = True
        self._layered = nearest(self._parent, again | repeated) >= 0
        # What a layer calls meets the layers below it; what an operator calls meets none.
        self._calls_repeated = np.zeros(len(step), bool)
        self._calls_repeated[self._parent[repeated & (self._parent >= 0)]] = True

    def _outermost(self, wanted: NDArray[np.bool_]) -> Int64:
        """The outermost wanted event around each one, itself included; their number: none."""
        # The least row index among the wanted ones that enclose a row: parents come first.
        count = len(self._step)
        rows = np.arange(count, dtype=np.int64)
        return np.asarray(inherited_minimum(self._parent, np.where(wanted, rows, count)), np.int64)

    @property
    def rows(self) -> Int64:
        """The events, in the order in which a recorder sees them."""
        numbers = np.arange(len(self._step), dtype=np.int64)
        outermost = self._outermost(self._wanted)
        chosen = self._wanted & (outermost == numbers)
        _, holding = self._holding()
        if not len(holding):
            return np.flatnonzero(chosen)
        # The zeros are made first, and are ops of their own inside.
        without = self._wanted.copy()
        without[holding] = False
        rows = np.flatnonzero(chosen | (without & (self._outermost(without) == numbers)))
        return rows[np.lexsort((np.isin(rows, holding), outermost[rows]))]

    def names_of(self, rows: Int64) -> list[str]:
        """What these events are called."""
        return [self._name_of(row) for row in rows.tolist()]

    def _holding(self) -> tuple[Int64, Int64]:
        """Candidates that hold others: maybe layers, and those that only make zeros before they
        work.
        """
        outermost = self._outermost(self._wanted)
        inner = np.flatnonzero(self._wanted & (outermost != np.arange(len(self._step))))
        inner = inner[self._layered[outermost[inner]]]
        held: dict[int, set[str]] = {}
        for holder, name in zip(outermost[inner].tolist(), self.names_of(inner)):
            held.setdefault(holder, set()).add(name)
        zeros = [row for row, names in held.items() if "aten::zeros" in names <= _ZEROS]
        # One that holds its own name alone is an overload around another: one operator.
        alone = [row for row, names in held.items() if names == {self._name_of(row)}]
        layers = held.keys() - set(zeros) - set(alone)
        return np.array(sorted(layers), np.int64), np.array(zeros, np.int64)

    def _name_of(self, row: int) -> str:
        return self._step.names[int(self._step.name[row])]

    def _kinds_of(self, rows: Int64) -> list[Kind]:
        return list(zip(self.names_of(rows), self._calls_repeated[rows].tolist()))

    def openable(self) -> list[Kind]:
        """Kinds of candidates that hold others and may be layers themselves."""
        return sorted(set(self._kinds_of(self._holding()[0])))

    def open(self, kind: Kind) -> Candidates:
        """The candidates with what such events hold in their place."""
        opened = copy(self)
        rows, _ = self._holding()
        opened._wanted = self._wanted.copy()
        chosen = np.array([found == kind for found in self._kinds_of(rows)], bool)
        opened._wanted[rows[chosen]] = False
        return opened


def candidate_rows(step: RawEvents, recorded_names: set[str]) -> Int64:
    """Rows of the events that a dispatch recorder would have seen, in order."""
    return Candidates(step, recorded_names).rows


def match_steps(
    steps: Sequence[RawEvents], recorded_names: Sequence[str]
) -> list[tuple[Int64, Int64]]:
    """Per step: candidate rows, and the recorded op that each is.

    A batching layer writes ``aten::mm`` around the ``aten::bmm`` that it makes of it, and no event
    says which of the two is the operator: the one with which more of the recorded ops are found.
    What was found out with one step holds for the next ones.
    """
    vocabulary, opened, judged = set(recorded_names), list[Kind](), set[Kind]()
    matches = []
    for step in steps:
        found = Candidates(step, vocabulary)
        for kind in opened:
            found = found.open(kind)
        best = match(found.names_of(found.rows), recorded_names)
        tried: list[Kind] | None = []
        while tried is not None:
            complete = _count(best) == len(recorded_names)
            kinds = [] if complete else [k for k in found.openable() if k not in judged]
            found, best, tried = _opened(found, best, kinds, recorded_names)
            opened += tried or ()
            judged.update(kinds if tried is None else ())
        matches.append((found.rows, best))
    return matches


def _opened(
    found: Candidates, best: Int64, kinds: Sequence[Kind], recorded_names: Sequence[str]
) -> tuple[Candidates, Int64, list[Kind] | None]:
    """The candidates with what finds more of the recorded ops opened, and what that was
    (``None``: nothing does).
    """
    # A single layer writes its operator twice before what it makes of it.
    for tried in _steps_of(kinds):
        other = found
        for kind in tried:
            other = other.open(kind)
        matched = match(other.names_of(other.rows), recorded_names)
        if _count(matched) > _count(best):
            return other, matched, tried
    return found, best, None


def _steps_of(kinds: Sequence[Kind]) -> list[list[Kind]]:
    again = [[(name, calls), (name, below)] for name, calls in kinds for below in (False, True)]
    return [*([kind] for kind in kinds), *again]


def _count(found: Int64) -> int:
    return int((found >= 0).sum())


def _again(step: RawEvents, parent: Int64) -> NDArray[np.bool_]:
    """Events that are called like the one around them."""
    if not len(step):
        return np.empty(0, bool)
    return np.asarray((parent >= 0) & (step.name[parent] == step.name) & ~step.annotation, bool)


def _layers(step: RawEvents, parent: Int64) -> NDArray[np.bool_]:
    """Events of layers above an operator: all but the innermost of three or more of one name.

    A layer calls the operator again, in front of it and at its own level. Two of a name are
    overloads of which one calls the other (``div.Scalar``, ``div.Tensor``), and one operator.
    """
    layer = np.zeros(len(step), bool)
    if not len(step):
        return layer
    again = _again(step, parent)
    third = again & again[parent]
    layer[parent[third]] = True
    layer[parent[parent[third]]] = True
    return layer
