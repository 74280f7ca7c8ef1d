"""Standard streams, which a script may have closed, or taken away, by the time we write to them."""

from __future__ import annotations

import errno
import os
import sys
from typing import TextIO


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
