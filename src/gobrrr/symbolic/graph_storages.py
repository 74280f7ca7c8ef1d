"""The memory of a captured step: which tensors share storage, where it lies, how long it lives."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import Any

from gobrrr.observe.sparse_gradients import parts_of
from gobrrr.symbolic.tensor_subclasses import tensors_of

# Where a storage lies. A program that never names the target is taken to run there as a whole; one
# that does means the host where it names the CPU or no device. An optimizer's counters are on the
# host in both.
TARGET, HOST, UNSTATED = "target", "host", "unstated"


@dataclass(slots=True)
class Record:
    """One storage: its bytes, its place, and the positions of the ops between which it lived."""

    bytes: int
    place: str
    born: int
    died: int | None = None


class Storages:
    """Numbers storages as they appear; a number is never given twice.

    ``now`` is the position of the op being recorded; birth and death are noted with it.
    ``of_step``: a step has begun; what comes before it sets the program up.
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.now = -1
        self.of_step = False
        # Until the capture is over; a thread that outlives it is to find nothing of it.
        self.open = True
        self.names_target = False
        self._moving = threading.local()
        self._ids: dict[int, int] = {}
        self._watch: dict[int, Any] = {}

    @property
    def moving_to(self) -> str | None:
        """Where results lie while a tensor is copied from one side to the other.

        A thread's own: another may make tensors of its own meanwhile.
        """
        place: str | None = getattr(self._moving, "to", None)
        return place

    @moving_to.setter
    def moving_to(self, place: str | None) -> None:
        self._moving.to = place

    def number(self, tensor: Any, place: str = UNSTATED) -> int | None:
        """The number of a tensor's storage; ``None`` for layouts without one (sparse, nested).

        ``place`` is where it lies if this is the first time that it is seen.
        """
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):
            return None
        key = storage._cdata
        known = self._ids.get(key)
        if known is not None:
            return known
        index = len(self.records)
        self.records.append(Record(int(storage.nbytes()), place, self.now))
        self._ids[key] = index

        def gone(_: Any) -> None:
            self._ids.pop(key, None)
            self._watch.pop(key, None)
            self.records[index].died = self.now

        # The object stands for the storage as long as anything holds it, autograd included.
        self._watch[key] = weakref.ref(storage, gone)
        return index

    def place_of(self, tensor: Any) -> str:
        """Where a tensor lies as far as the program has said."""
        index = self._number_of_first(tensor)
        return UNSTATED if index is None else self.records[index].place

    def place(self, tensor: Any, place: str) -> None:
        """Where a result lies, or what it holds, as far as that was not seen before."""
        if self.number(tensor, place) is None:
            for part in _held_by(tensor):
                self.number(part, place)

    def place_results(self, found: list[Any], inputs: list[Any]) -> None:
        """Results lie where the arguments do, or where a tensor is being copied to."""
        if self.moving_to is not None:
            place = self.moving_to
        elif not inputs:
            place = UNSTATED
        else:
            places = {self.place_of(tensor) for tensor in inputs}
            place = TARGET if TARGET in places else UNSTATED if UNSTATED in places else HOST
        for tensor in found:
            self.place(tensor, place)

    def put(self, tensor: Any, place: str) -> None:
        """The program has said where a tensor lies."""
        for inner in tensors_of(tensor):
            index = self.number(inner, place)
            held = [index] if index is not None else map(self.number, _held_by(inner))
            for number in held:
                if number is not None:
                    self.records[number].place = place

    def on_host(self, index: int) -> bool:
        """Whether a storage lies on the host, now that the whole program is known."""
        place = self.records[index].place
        return place == HOST or (place == UNSTATED and self.names_target)

    def is_on_host(self, tensor: Any) -> bool:
        """The same, of a tensor."""
        index = self._number_of_first(tensor)
        return index is not None and self.on_host(index)

    def _number_of_first(self, tensor: Any) -> int | None:
        """Of a wrapper's first tensor, of a sparse one's indices."""
        first = _first_of(tensor)
        index = self.number(first)
        if index is None:
            index = next(map(self.number, _held_by(first)), None)
        return index

    def alive(self) -> set[int]:
        """Numbers of the storages that exist now."""
        return {i for i, record in enumerate(self.records) if record.died is None}

    def start_over(self) -> None:
        """What exists now was there before the step; what is gone never took part in it."""
        self.now = -1
        self.of_step = True
        for record in self.records:
            record.born = -1
            if record.died is not None:
                record.died = -1


def _first_of(tensor: Any) -> Any:
    """Where a wrapper lies is where the first of its tensors does."""
    return next(iter(tensors_of(tensor)), tensor)


def _held_by(tensor: Any) -> tuple[Any, ...]:
    """The dense tensors of a sparse one, asked for below all modes: that is no op of the step.

    Nor may the stand-in's own class answer: it would ask where the stand-in lies.
    """
    import torch

    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        return parts_of(tensor)
