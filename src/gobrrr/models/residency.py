"""Which of an op's bytes are in the last-level cache: what earlier ops left there.

The cache is taken to keep the storages used last, as much as it holds, and to write back what was
written when it has to go. Hardware keeps lines, not tensors, and hashes their addresses; for whole
tensors the outcome is close (a storage larger than the cache leaves its end in it, not its start,
so a next reader that starts at the front finds nothing).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.traffic import is_inplace
from gobrrr.work.views import NO_WORK


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


def cold_bytes_of_step(calls: Sequence[OpCall], capacity_bytes: int) -> list[float]:
    """For each call, the bytes that it moves from or to memory, in a step that repeats.

    The step is run through the cache twice; the second round counts, so that weights that survive
    from one step to the next are in it. A tensor without a known storage, and one whose dtype is
    not known, counts as cold or not at all respectively.

    Args:
        calls: the ops of one step in order.
        capacity_bytes: of the last-level cache; 0 makes every byte cold.
    """
    cache = _Cache(capacity_bytes)
    result: list[float] = []
    for last in (False, True):
        for call in calls:
            if call.name in NO_WORK:
                # A view names a tensor and touches none of its bytes.
                if last:
                    result.append(0.0)
                continue
            cold = 0
            written = _written(call)
            own = {id(tensor) for tensor in written}
            for tensor in call.tensors:
                if id(tensor) in own and not is_inplace(call):
                    continue
                size = tensor.unique_bytes or 0
                cold += size if tensor.storage is None else cache.read(tensor.storage, size)
            for tensor in written:
                size = tensor.unique_bytes or 0
                cold += size if tensor.storage is None else cache.write(tensor.storage, size)
            if last:
                result.append(float(cold))
    return result


def _written(call: OpCall) -> list[TensorSpec]:
    if is_inplace(call) and call.tensors:
        return [call.tensors[0]]
    return list(call.outputs or ())
