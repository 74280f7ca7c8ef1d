"""Warnings that torch's C++ writes to the process's stderr, past Python's filters.

An operator that is called through ``torch.ops`` has no handler that would make them Python's.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator

# As c10's logging writes them: "[W1127 19:06:38.388461098 ReduceOps.cpp:1861] Warning: ...".
_WARNING = re.compile(rb"^\[W\d{4} [\d:.]+ [^\]\n]+\] .*\n?", re.MULTILINE)


@contextlib.contextmanager
def native_warnings_dropped() -> Iterator[None]:
    """For work of gobrrr's own. What else is written to stderr meanwhile comes at its end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    try:
        saved = os.dup(2)
    except OSError:
        # There is no stderr to write to.
        yield
        return
    with tempfile.TemporaryFile(buffering=0) as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            held.seek(0)
            if rest := _WARNING.sub(b"", held.read()):
                with contextlib.suppress(OSError):
                    os.write(2, rest)
