"""One kernel's walk through memory, and what a recipe for it may know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gobrrr.timeline.ops import Arg, OpCall
from gobrrr.work.estimate import Work


@dataclass(frozen=True, slots=True)
class Walk:
    """One kernel's traffic relative to its op's least.

    Attributes:
        reads: how often it reads the op's inputs; 0 for none.
        cold_reads: how many of these find nothing in the cache, where the op's inputs are too
            large for it.
        writes: how often it writes the op's outputs.
        cold_writes: how many of these go to memory, where the outputs are too large for the cache.
        arithmetic: its share of the op's arithmetic, over 1 for index arithmetic.
        efficiency: of the bandwidth, for the order it walks in.
        programs: independent pieces of work; ``None``: enough for every multiprocessor.
        indexed: elements whose addresses are computed one by one.
        trips: trips to memory that depend on each other, beyond the first.
        tail: trips of its last block, once all others have ended.
        slots: instructions of the float32 units, where they are more than the op's FLOPs.
        converted: elements of a stream that are loaded or stored one by one, to convert them.
        issued: instructions of a stream beside those.
    """

    reads: float = 1.0
    writes: float = 1.0
    arithmetic: float = 1.0
    efficiency: float = 1.0
    programs: float | None = None
    indexed: float = 0.0
    trips: int = 0
    cold_reads: float = 1.0
    slots: float = 0.0
    converted: float = 0.0
    issued: float = 0.0
    cold_writes: float = 1.0
    tail: int = 0


ONE = (Walk(),)


@dataclass(frozen=True, slots=True)
class Machine:
    """What a recipe may know of the device.

    ``strided``: the efficiency of walking across rows; ``kind``: ``cuda``, ``hip``, ...;
    ``units``: multiprocessors, ``None`` if unknown; ``cache_bytes``: of the last-level cache;
    ``row_trips``: trips to memory that a row of a layer norm adds to those of its reads;
    ``resident_threads``: threads that a multiprocessor holds; ``row_vectors``: as in ``Flags``;
    ``norm_slots``: instructions that an element of a layer norm takes.
    """

    strided: float
    kind: str
    units: int | None
    cache_bytes: int
    row_trips: int = 0
    resident_threads: int = 2048
    row_vectors: bool = True
    norm_slots: float = 0.0


Recipe = Callable[[OpCall, Work, Machine], tuple[Walk, ...]]


def dimension_of(arg: Arg, rank: int) -> int:
    """A dimension, counted from the front.

    Raises:
        ValueError: it was not recorded.
    """
    if not isinstance(arg, int):
        raise ValueError("the dimension was not recorded")
    return arg % rank if rank else 0


def integers_of(arg: Arg) -> tuple[int, ...] | None:
    """A list of integers, or one; ``None`` if it was not recorded."""
    if isinstance(arg, int) and not isinstance(arg, bool):
        return (arg,)
    if isinstance(arg, tuple):
        found = tuple(n for n in arg if isinstance(n, int) and not isinstance(n, bool))
        return found if len(found) == len(arg) else None
    return None
