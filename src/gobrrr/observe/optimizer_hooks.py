"""Hooks around every optimizer's step that may be put on and taken off from inside one.

torch iterates over its table of global hooks while it calls them, so that a hook which registers
or removes another raises in the user's program. Here the table is replaced instead: the running
iteration keeps the one it has.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

Hook = Callable[..., None]
_TABLES = {"before": "_global_optimizer_pre_hooks", "after": "_global_optimizer_post_hooks"}


def around_optimizer_steps(
    *, before: Hook | None = None, after: Hook | None = None
) -> Callable[[], None]:
    """Call ``before(optimizer, args, kwargs)`` and ``after(...)`` around each optimizer step.

    Returns the function that undoes it. Raises AttributeError if this version of torch keeps its
    hooks elsewhere.
    """
    import torch.optim.optimizer as home

    added: list[tuple[str, object, OrderedDict[Any, Hook]]] = []
    for when, hook in (("before", before), ("after", after)):
        if hook is None:
            continue
        name = _TABLES[when]
        table: OrderedDict[Any, Hook] = getattr(home, name)
        # A key of its own: torch's handles use integers.
        key = object()
        replaced = OrderedDict(table)
        replaced[key] = hook
        setattr(home, name, replaced)
        added.append((name, key, table))

    def undo() -> None:
        for name, key, original in added:
            left = OrderedDict((k, v) for k, v in getattr(home, name).items() if k is not key)
            # The very table from before, if nothing else came: handles of others refer to it.
            setattr(home, name, original if left == original else left)

    return undo
