"""What a ``DistributedDataParallel`` says of itself."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from gobrrr.observe.program_facts import DataParallelFact


def data_parallel(modules: Iterable[Any]) -> tuple[DataParallelFact, ...]:
    """Those among modules, which are in the order of their calls.

    What it logs of itself is read, which asks no other rank.
    """
    home = sys.modules.get("torch.nn.parallel.distributed")
    kind = getattr(home, "DistributedDataParallel", None)
    if kind is None:
        return ()
    found = []
    for index, module in enumerate(modules):
        if not issubclass(type(module), kind):
            continue
        logged: dict[str, Any] = {}
        # Private, and absent from builds without it.
        with contextlib.suppress(AttributeError, RuntimeError):
            logged = module._get_ddp_logging_data()
        unused = logged.get("unused_parameter_size")
        found.append(
            DataParallelFact(
                module=type(module.module).__name__,
                find_unused=bool(module.find_unused_parameters),
                unused_bytes=int(unused) if unused is not None else None,
                parameter_bytes=int(logged.get("total_parameter_size_bytes", 0)),
                buckets=_buckets(logged),
                world_size=int(logged.get("world_size", 1)),
                index=index,
                syncs_buffers=bool(module.broadcast_buffers and list(module.buffers())),
            )
        )
    return tuple(found)


def _buckets(logged: Mapping[str, Any]) -> int:
    """How many there are: their sizes stand in one text, those made anew after the first step."""
    sizes = logged.get("rebuilt_bucket_sizes") or logged.get("bucket_sizes") or ""
    return len(str(sizes).split(","))
