"""The worker processes of data loaders: when a program starts and ends them, and at which line."""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable
from typing import Any

from gobrrr.live.watch.loaders import describe_loader
from gobrrr.observe.program_facts import LoaderFact
from gobrrr.observe.replacement import put_in_place
from gobrrr.observe.source_lines import user_line
from gobrrr.timeline.step_kinds import Mark

STARTING_WORKERS, ENDING_WORKERS = "starting loader workers", "ending loader workers"
# A loop asks for its first batch at once; what it does in between is not the loader's.
_AT_ONCE_NS = 1_000_000


def watch_loader_workers(
    clock: Callable[[], int], mark: Callable[[Mark], None], loaders: dict[LoaderFact, None]
) -> Callable[[], None]:
    """Mark the starts of workers with the wait for their first batch, and their ends.

    Costs nothing where no loader has workers, and half a microsecond for each batch elsewhere.
    ``loaders`` gets what the program goes through: a loader may be gone when it is asked for.
    Returns what ends it; a process that was forked marks nothing.
    """
    from torch.utils.data import dataloader

    kind = getattr(dataloader, "_MultiProcessingDataLoaderIter", None)
    names = ("__init__", "_next_data", "_shutdown_workers")
    if kind is None or not all(hasattr(kind, name) for name in names):
        return lambda: None
    start, fetch, end = (getattr(kind, name) for name in names)
    # Iterator -> when its workers were started, until it has given its first batch.
    started: dict[int, tuple[int, int]] = {}

    def tell(name: str, begin_ns: int) -> None:
        line = user_line(sys._getframe(2)) or ""
        mark(Mark(name, begin_ns, clock(), line))

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        begin_ns = clock()
        start(self, *args, **kwargs)
        started[id(self)] = begin_ns, clock()

    def next_data(self: Any) -> Any:
        begun = started.pop(id(self), None)
        if begun is None:
            return fetch(self)
        now = clock()
        begin_ns, until_ns = begun
        try:
            return fetch(self)
        finally:
            tell(STARTING_WORKERS, begin_ns if now - until_ns < _AT_ONCE_NS else now)

    def shutdown(self: Any) -> None:
        started.pop(id(self), None)
        begin_ns, running = clock(), not getattr(self, "_shutdown", True)
        try:
            end(self)
        finally:
            if running:
                tell(ENDING_WORKERS, begin_ns)

    base = dataloader._BaseDataLoaderIter
    begin = base.__init__
    described: weakref.WeakSet[Any] = weakref.WeakSet()

    def begin_any(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, loader, *args, **kwargs)
        # A data set of the user's may do anything when asked: such a one goes unseen.
        with contextlib.suppress(Exception):
            if loader not in described:
                described.add(loader)
                loaders[describe_loader(loader)] = None

    undo = [
        put_in_place(base, "__init__", begin_any),
        put_in_place(kind, "__init__", init),
        put_in_place(kind, "_next_data", next_data),
        put_in_place(kind, "_shutdown_workers", shutdown),
    ]

    def remove() -> None:
        for each in undo:
            each()

    return remove
