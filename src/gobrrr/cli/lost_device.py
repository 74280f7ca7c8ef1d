"""How a process ends whose GPU is lost: as Python would, with its own exit code.

After a device-side assertion of an NVIDIA GPU a process in which PyTorch's profiler has run ends
with a segmentation fault while its libraries are unloaded (torch 2.11, an H200), which would
replace the exit code.
"""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress


class Ending:
    """Made before the program runs, so that what the program registered runs first."""

    def __init__(self) -> None:
        self._code: int | None = None
        atexit.register(self._leave)

    def without_device(self, code: int) -> None:
        """End with this code without unloading anything, if the GPU in use no longer answers."""
        from gobrrr.devices.backends import gpu_in_use

        try:
            backend = gpu_in_use()
            if backend is not None:
                backend.synchronise()
        except RuntimeError:
            self._code = code

    def _leave(self) -> None:
        if self._code is None:
            return
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(self._code)
