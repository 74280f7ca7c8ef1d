"""Captured networks -> distinct kernels with counts: what the model is asked to cost."""

from __future__ import annotations

import gzip
import pickle
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from gobrrr.models.compiled import compiled_kernels
from gobrrr.timeline.graph import GraphOp
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


def load(path: Path) -> Network:
    """One network of the cache."""
    with gzip.open(path, "rb") as file:
        graph = pickle.load(file)
    calls = [OpCall(*call) for call in graph["calls"]]
    ops = [GraphOp(call) for call in calls]
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


def load_all(cache: Path, *, rebuild: bool = False) -> list[Network]:
    """Every network of the cache, by name; the tables are kept beside the captures."""
    kept = cache / "networks.pickle"
    if kept.exists() and not rebuild:
        with kept.open("rb") as file:
            found: list[Network] = pickle.load(file)
        return found
    found = [load(path) for path in sorted(cache.glob("*.pickle.gz"))]
    with kept.open("wb") as file:
        pickle.dump(found, file)
    return found
