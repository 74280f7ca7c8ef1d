"""Which of an op's bytes are in a cache: what earlier ops left there.

The cache is taken to keep the storages used last, as much as it holds, and to write back what was
written when it has to go. Hardware keeps lines, not tensors, and hashes their addresses; for whole
tensors the outcome is close (a storage larger than the cache leaves its end in it, not its start,
so a next reader that starts at the front finds nothing).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gobrrr.devices.ceilings import Ceilings
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.formulas.views import NO_WORK
from gobrrr.work.traffic import is_inplace, list_at, tensors_in

# Of a fused optimizer: it updates its parameters and all of its state in place.
_GRADIENTS = 1


@dataclass(slots=True)
class _Line:
    size: int
    dirty: bool


class _Cache:
    """Storages by last use."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity = capacity_bytes
        self.lines: OrderedDict[int, _Line] = OrderedDict()
        self.used = 0

    def holds(self, storage: int, size: int) -> bool:
        """Whether that much of a storage is there."""
        line = self.lines.get(storage)
        return line is not None and line.size >= size

    def read(self, storage: int, size: int) -> int:
        """Bytes that come from memory, and those written back to make room."""
        line = self.lines.get(storage)
        if line is not None and line.size >= size:
            self.lines.move_to_end(storage)
            return 0
        have = line.size if line is not None else 0
        return size - have + self._put(storage, size, line is not None and line.dirty)

    def write(self, storage: int, size: int) -> int:
        """Bytes written back to make room (a whole tensor is written without being read)."""
        line = self.lines.get(storage)
        if line is not None and line.size >= size:
            line.dirty = True
            self.lines.move_to_end(storage)
            return 0
        return self._put(storage, size, True)

    def _put(self, storage: int, size: int, dirty: bool) -> int:
        old = self.lines.pop(storage, None)
        if old is not None:
            self.used -= old.size
        if size > self.capacity:
            # It flows through: nothing that a reader from the front could use stays.
            return (size if dirty else 0) + self._evict(self.capacity)
        written = self._evict(size)
        self.lines[storage] = _Line(size, dirty)
        self.used += size
        return written

    def _evict(self, room: int) -> int:
        written = 0
        while self.lines and self.used + room > self.capacity:
            _, line = self.lines.popitem(last=False)
            self.used -= line.size
            written += line.size if line.dirty else 0
        return written


class _Accesses(NamedTuple):
    """The storages that a call touches.

    ``reads``: (storage, bytes, whether the call writes it too); ``writes``: (storage, bytes).
    """

    reads: tuple[tuple[int | None, int, bool], ...]
    writes: tuple[tuple[int | None, int], ...]
    in_place: bool


# (bytes read, bytes written) beyond each level of memory but the last.
MissedBytes = tuple[tuple[float, float], ...]


def missed_bytes_of_step(calls: Sequence[OpCall], ceilings: Ceilings) -> list[MissedBytes]:
    """What each call cannot find in each level of memory but the last, in a step that repeats.

    A tensor is in a level if what was touched since its last use, in bytes, fits there beside it.
    Weights of more than a level's size are cold in every step, however small each of them is.

    Returns:
        For each call, (bytes read, bytes written) beyond each level that has a capacity: reads of
        what is not there, and writes to memory that was not there (an update in place) or cannot
        stay there. What other calls leave to be written back is not counted. A tensor without a
        known storage may be anywhere: it is not counted.
    """
    return _missed_of(_accesses(calls), ceilings)


def residency_of_step(
    calls: Sequence[OpCall], ceilings: Ceilings | None, capacity_bytes: int
) -> tuple[list[MissedBytes], list[float]]:
    """For each call what it misses in each level of memory, and its cold bytes.

    The step is run through the cache twice; the second round counts, so that weights that survive
    from one step to the next are in it. A tensor without a known storage, and one whose dtype is
    not known, counts as cold or not at all respectively.

    Args:
        calls: the ops of one step in order.
        ceilings: of the device, with its levels; ``None``: nothing is known of them.
        capacity_bytes: of the last-level cache; 0 makes every byte cold.

    Returns:
        ``missed_bytes_of_step``, empty of a call that finds all; and the bytes that each call moves
        from or to memory.
    """
    accesses = _accesses(calls)
    missed: list[MissedBytes] = [()] * len(calls)
    if ceilings is not None:
        missed = [found if any(map(any, found)) else () for found in _missed_of(accesses, ceilings)]
    return missed, _cold(accesses, capacity_bytes)


def with_missed(ops: Sequence[StepOp], ceilings: Ceilings | None) -> list[StepOp]:
    """The ops of a step that repeats, each call with what it does not find in each level."""
    if ceilings is None:
        return list(ops)
    missed = missed_bytes_of_step([op.call for op in ops], ceilings)
    return [
        replace(op, call=replace(op.call, missed=found)) if any(map(any, found)) else op
        for op, found in zip(ops, missed)
    ]


def _accesses(calls: Sequence[OpCall]) -> list[_Accesses | None]:
    """What each call touches; ``None`` of a view, which names a tensor and touches no byte."""
    found: list[_Accesses | None] = []
    for call in calls:
        if call.name in NO_WORK:
            found.append(None)
            continue
        in_place, written = is_inplace(call), _written(call)
        own = {id(tensor) for tensor in written}
        reads = [
            (tensor.storage, tensor.unique_bytes or 0, id(tensor) in own)
            for tensor in call.tensors
            if in_place or id(tensor) not in own
        ]
        writes = [(tensor.storage, tensor.unique_bytes or 0) for tensor in written]
        found.append(_Accesses(tuple(reads), tuple(writes), in_place))
    return found


def _cold(accesses: Sequence[_Accesses | None], capacity_bytes: int) -> list[float]:
    cache = _Cache(capacity_bytes)
    result: list[float] = []
    for last in (False, True):
        for call in accesses:
            cold = 0
            if call is not None:
                for storage, size, _ in call.reads:
                    cold += size if storage is None else cache.read(storage, size)
                for storage, size in call.writes:
                    cold += size if storage is None else cache.write(storage, size)
            if last:
                result.append(float(cold))
    return result


def _missed_of(accesses: Sequence[_Accesses | None], ceilings: Ceilings) -> list[MissedBytes]:
    capacities = [v.capacity_bytes for v in ceilings.levels if v.capacity_bytes is not None]
    per_level = [_missed(accesses, capacity) for capacity in capacities]
    if not per_level:
        return [()] * len(accesses)
    # Steps of very many ops repeat few: one object for each distinct one.
    known: dict[MissedBytes, MissedBytes] = {}
    return [known.setdefault(missed, missed) for missed in zip(*per_level)]


def _missed(accesses: Sequence[_Accesses | None], capacity_bytes: int) -> list[tuple[float, float]]:
    cache = _Cache(capacity_bytes)
    result: list[tuple[float, float]] = []
    known: dict[tuple[int, int], tuple[float, float]] = {}
    for last in (False, True):
        for call in accesses:
            read = written = 0
            if call is not None:
                for storage, size, own in call.reads:
                    if storage is None:
                        continue
                    missed = 0 if cache.holds(storage, size) else size
                    cache.read(storage, size)
                    read += missed
                    written += missed if own else 0
                for storage, size in call.writes:
                    if storage is not None:
                        cache.write(storage, size)
                        if size > capacity_bytes and not call.in_place:
                            written += size
            if last:
                pair = (read, written)
                result.append(known.setdefault(pair, (float(read), float(written))))
    return result


def _written(call: OpCall) -> list[TensorSpec]:
    if not is_inplace(call) or not call.tensors:
        return list(call.outputs or ())
    if not call.name.startswith("aten::_fused_"):
        # A tensor, or the list of a ``_foreach_`` operator.
        return tensors_in(call.args[:1])
    lists = [list_at(call, i) for i in range(len(call.args)) if i != _GRADIENTS]
    return [spec for tensors in lists for spec in tensors]
