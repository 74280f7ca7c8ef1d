"""Standard streams, which a script may have closed, or taken away, by the time we write to them."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from pathlib import Path
from typing import TextIO

# Rooms that print; every other that raises an OSError was about something else.
_PRINTING = ("gobrrr.cli", "gobrrr.reports")


def stand_in_for_closed() -> None:
    """Gives stdout and stderr, if we were started without, a place where what is printed is lost.

    Python has ``None`` there then (``gobrrr report d.json >&-``), which ``print`` alone accepts.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - stays open
            setattr(sys, name, nowhere)


def failed_to_print(error: OSError) -> bool:
    """Whether the error is that of our own printing: such an error names no file."""
    if error.filename is not None:
        return False
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    module = str(frames[-1].f_globals.get("__name__", "")) if frames else ""
    return module in _PRINTING or module.startswith(tuple(f"{room}." for room in _PRINTING))


def give_up(descriptor: int) -> None:
    """Leads stdout (1) or stderr (2) nowhere from here on.

    The interpreter writes what is left of them once more on its way out, and must not fail at that
    (https://docs.python.org/3/library/signal.html).
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def flush_stdout() -> None:
    """Writes what was printed so far, unless a script has closed stdout or taken it away."""
    if takes_text(sys.stdout):
        sys.stdout.flush()


def takes_text(stream: TextIO | None) -> bool:
    """Whether a stream is still open, and its file descriptor too if it has one."""
    if stream is None or getattr(stream, "closed", False):
        return False
    try:
        os.fstat(stream.fileno())
    except OSError as error:
        # io.UnsupportedOperation, of a stream without a descriptor, has no number.
        return error.errno != errno.EBADF
    except (AttributeError, ValueError):
        # A script's own stream may have `write` alone.
        return hasattr(stream, "flush")
    return True
