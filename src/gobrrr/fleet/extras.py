"""The packages of ``gobrrr[fleet]`` and ``gobrrr[ray]``, and what is said where one is missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from gobrrr.timeline.errors import InputError

# Module -> the extra that installs it.
_EXTRAS = {"pyarrow": "fleet", "duckdb": "fleet", "fsspec": "fleet", "ray": "ray"}


def package(module: str, wanted_for: str) -> Any:
    """A module of an extra.

    Args:
        module: its name.
        wanted_for: what needs it, as the subject of the sentence.

    Raises:
        InputError: it is not installed; the sentence names the extra.
    """
    try:
        return import_module(module)
    except ImportError:
        raise InputError(
            f"{wanted_for} needs {module}: pip install 'gobrrr[{_EXTRAS[module]}]'"
        ) from None
