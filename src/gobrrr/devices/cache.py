"""Where gobrrr keeps files between runs."""

from __future__ import annotations

import time
from pathlib import Path

# Ceilings that were measured while others had the machine are good for so long: all ranks of a job
# start with the same.
_BUSY_COUNTS_FOR_S = 3600.0


def cache_folder() -> Path:
    """``gobrrr`` in the user's cache folder."""
    from platformdirs import user_cache_path

    return user_cache_path("gobrrr", appauthor=False)


def is_old(path: Path) -> bool:
    """Whether a file is too old for ceilings of a busy machine."""
    return time.time() - path.stat().st_mtime > _BUSY_COUNTS_FOR_S
