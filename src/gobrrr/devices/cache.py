"""Where gobrrr keeps files between runs."""

from __future__ import annotations

from pathlib import Path


def cache_folder() -> Path:
    """``gobrrr`` in the user's cache folder."""
    from platformdirs import user_cache_path

    return user_cache_path("gobrrr", appauthor=False)
