"""Shapes of tensors inside every kind of batch, found without any code of the batch's own."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from gobrrr.live.watch.call_shapes import shapes_of  # noqa: E402

IDS = torch.zeros(2, 7, dtype=torch.int64)
MASK = torch.zeros(2, 7)
Pair = namedtuple("Pair", "ids mask")


@dataclass
class Batch:
    ids: Any
    mask: Any


@dataclass(slots=True)
class SlottedBatch:
    ids: Any
    mask: Any


class Store:
    def __init__(self, **held: Any) -> None:
        self._mapping = held


class Graph:
    """As PyG's ``Data`` keeps its tensors, and asks for none of its attributes."""

    def __init__(self, **held: Any) -> None:
        self.__dict__["_store"] = Store(**held)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("asked for an attribute")

    def __iter__(self) -> Any:
        raise AssertionError("iterated over")


class Guarded(dict):  # type: ignore[type-arg]
    def values(self) -> Any:
        raise AssertionError("asked for its values")


class Own(list):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        raise AssertionError("iterated over")


@pytest.mark.parametrize(
    "batch",
    [
        {"ids": IDS, "mask": MASK},
        UserDict(ids=IDS, mask=MASK),
        OrderedDict(ids=IDS, mask=MASK),
        SimpleNamespace(ids=IDS, mask=MASK),
        Batch(IDS, MASK),
        SlottedBatch(IDS, MASK),
        Pair(IDS, MASK),
        Graph(ids=IDS, mask=MASK),
        Guarded(ids=IDS, mask=MASK),
        Own([IDS, MASK]),
        [SimpleNamespace(inputs=UserDict(ids=IDS, mask=MASK)), Batch(None, None)],
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_tensors_are_found_in_every_kind_of_batch(batch: Any) -> None:
    assert shapes_of((batch,)) == ([(2, 7), (2, 7)], True)


def test_a_batch_that_holds_itself_or_thousands_of_objects_is_looked_into_for_a_while() -> None:
    ring = SimpleNamespace(mask=MASK)
    ring.itself = ring
    deep = ring
    for _ in range(50):
        deep = SimpleNamespace(inner=deep)
    many = [SimpleNamespace(mask=MASK) for _ in range(5000)]
    assert shapes_of((ring,)) == ([(2, 7)], False)
    assert shapes_of((deep,)) == ([], False)
    assert len(shapes_of((many,))[0]) == 16
    # Numbers are none, however many: what comes after too many of them goes unseen.
    assert shapes_of((list(range(100_000)), MASK)) == ([], False)
    assert shapes_of((list(range(100)), MASK)) == ([(2, 7)], False)


def test_neither_weights_nor_what_is_kept_of_earlier_tokens_tell_steps_apart() -> None:
    class DynamicCache:
        def __init__(self) -> None:
            self.keys = MASK

    given = (torch.nn.Linear(2, 2), DynamicCache(), SimpleNamespace(model=torch.nn.Linear(2, 2)))
    assert shapes_of(given) == ([], False)
    # What stands in the open comes first, whatever the order.
    assert shapes_of((SimpleNamespace(mask=MASK), IDS)) == ([(2, 7), (2, 7)], True)
