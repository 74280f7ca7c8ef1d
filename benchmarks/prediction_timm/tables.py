"""Captured networks -> distinct kernels with counts: what the model is asked to cost."""

from __future__ import annotations

import gzip
import pickle
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from gobrrr.roofline.compiled import compiled_kernels
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall
from gobrrr.work import work_of
from gobrrr.work.estimate import Work

# SMs of the RTX 4090: they decide which reductions Inductor splits.
MULTIPROCESSORS = 128


@dataclass(frozen=True)
class Kernel:
    """One distinct kernel of a network and how often it runs."""

    call: OpCall
    work: Work | None
    split: bool
    count: int


@dataclass(frozen=True)
class Network:
    """A network with its distinct kernels, eager and compiled."""

    name: str
    family: str
    batch: int
    eager: tuple[Kernel, ...]
    compiled: tuple[Kernel, ...]
    ops: int


def captures(cache: Path) -> list[Path]:
    """Captured networks in the order of a hash of their names, so that any few are a sample."""
    return sorted(cache.glob("*.pickle.gz"), key=lambda path: zlib.crc32(path.name.encode()))


def load(path: Path) -> Network:
    """One captured network as kernels; the tables are kept beside it."""
    kept = path.with_suffix("").with_suffix(".tables")
    if kept.exists():
        with kept.open("rb") as file:
            found: Network = pickle.load(file)
        return found
    found = _tables(path)
    with kept.open("wb") as file:
        pickle.dump(found, file)
    return found


def _tables(path: Path) -> Network:
    with gzip.open(path, "rb") as file:
        graph = pickle.load(file)
    calls = [OpCall(*call) for call in graph["calls"]]
    ops = [StepOp(call) for call in calls]
    eager = Counter(calls)
    compiled: Counter[tuple[OpCall, Work | None, bool]] = Counter()
    kernels = compiled_kernels(ops, graph["kept"], multiprocessors=MULTIPROCESSORS)
    for kernel in kernels:
        compiled[kernel.call, kernel.work, kernel.split] += 1
    return Network(
        graph["model"],
        graph["family"],
        graph["batch"],
        tuple(Kernel(call, work_of(call), False, n) for call, n in eager.items()),
        tuple(Kernel(call, work, split, n) for (call, work, split), n in compiled.items()),
        len(calls),
    )
