"""Recorded traces of any known format -> ``Timeline``."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path
from typing import Protocol

from gobrrr.recordings import trace
from gobrrr.timeline.data import Timeline

# Enough of a file to tell its format.
HEAD_BYTES = 4096


class Reader(Protocol):
    """One format of trace. A module with these two functions is one."""

    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether the file is of this format, by its name and its first bytes, unpacked."""

    def read(self, path: Path) -> Timeline:
        """The timeline of the file.

        Raises:
            InputError: it is damaged, or not of this format after all; one sentence says why.
        """


# The first that recognises a file reads it. The last one takes whatever is left, so that it says
# what is wrong with a file that is no trace.
READERS: tuple[Reader, ...] = (trace,)
# What their files are called: what is taken for a trace in a folder of all sorts of things.
ENDINGS = (".json", ".json.gz")


def read_trace(path: str | os.PathLike[str]) -> Timeline:
    """Reads a trace, by the first of ``READERS`` that recognises it.

    Args:
        path: the file; plain or gzip.

    Returns:
        The timeline of the process's busiest device. Times are exact integer nanoseconds on the
        trace's own clock.

    Raises:
        InputError: the file is missing, damaged, cut short, too large for the memory, or no trace.
    """
    path = Path(path)
    head = _head(path)
    return next(reader for reader in READERS if reader.recognises(path, head)).read(path)


def _head(path: Path) -> bytes:
    """The first bytes of a file, unpacked if it is gzip; none if it cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
            if head[:2] != b"\x1f\x8b":
                return head
            file.seek(0)
            with gzip.open(file) as unpacked:
                return unpacked.read(HEAD_BYTES)
    except (OSError, EOFError, zlib.error):
        return b""
