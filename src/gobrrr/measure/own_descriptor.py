"""Descriptors of gobrrr's in the program's process, which the program may close."""

from __future__ import annotations

import contextlib
import os


class OwnDescriptor:
    """An open file of gobrrr's, by its number.

    A program that becomes a daemon closes all that it finds, and what it opens then has the same
    numbers: those are no longer gobrrr's to read, write or close.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._file = self._what_is_open()

    def is_own(self) -> bool:
        """Whether the number still stands for what it stood for."""
        return self._file is not None and self._what_is_open() == self._file

    def close(self) -> None:
        """Close it, if it is still gobrrr's; once."""
        if self.is_own():
            self._file = None
            os.close(self.number)

    def _what_is_open(self) -> tuple[int, int] | None:
        with contextlib.suppress(OSError):
            found = os.fstat(self.number)
            return found.st_dev, found.st_ino
        return None
