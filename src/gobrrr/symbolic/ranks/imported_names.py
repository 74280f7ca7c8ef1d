"""Functions and classes that are replaced for a while, where programs have imported them by name.

``from torch.distributed.fsdp import fully_shard`` is a name of the importing module's own. One that
was imported before the capture has the original; one that is imported within it keeps the
replacement, and with it what that writes down, for captures and programs that come after.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


@contextlib.contextmanager
def replaced_by_name(pairs: Sequence[tuple[Any, Any]]) -> Iterator[None]:
    """Until the block ends names of an original are its replacement's, and afterwards all its own.

    Args:
        pairs: original and replacement; no replacement is that of two originals.
    """
    # PyTorch's own modules need the originals for what they do themselves.
    _rename(pairs, keep=("torch", "gobrrr"))
    try:
        yield
    finally:
        _rename([(made, original) for original, made in pairs], keep=("gobrrr",))


def _rename(pairs: Sequence[tuple[Any, Any]], keep: Sequence[str]) -> None:
    new = {id(former): value for former, value in pairs}
    # Not by ``sys.modules``: a file that is loaded twice is there once.
    for namespace in gc.get_referrers(*(former for former, _ in pairs)):
        if not _is_of_module(namespace) or _package(namespace) in keep:
            continue
        for name, value in list(namespace.items()):
            if id(value) in new:
                namespace[name] = new[id(value)]


def _is_of_module(value: Any) -> bool:
    """Whether a value is what a module of Python code holds."""
    return isinstance(value, dict) and "__builtins__" in value and "__name__" in value


def _package(namespace: Mapping[str, Any]) -> str:
    return str(namespace["__name__"]).partition(".")[0]
