"""``torch.save``: when a program saves, and at which line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from gobrrr.observe.replacement import put_in_place
from gobrrr.observe.source_lines import user_line
from gobrrr.timeline.step_kinds import Mark


def watch_saving(clock: Callable[[], int], mark: Callable[[Mark], None]) -> Callable[[], None]:
    """Mark each call; returns what ends it."""
    import torch

    original = torch.save

    def watched_save(*args: Any, **kwargs: Any) -> Any:
        begin_ns = clock()
        try:
            return original(*args, **kwargs)
        finally:
            line = user_line(sys._getframe(1)) or ""
            mark(Mark("checkpointing", begin_ns, clock(), line))

    return put_in_place(torch, "save", watched_save)
