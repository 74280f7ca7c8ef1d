"""What ran: versions and settings that a reader needs to trust or repeat a figure."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

from gobrrr import __version__
from gobrrr.timeline.data import Timeline

# Settings that change how fast PyTorch runs on a CPU; nothing else of the environment is kept.
_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "GLIBC_TUNABLES", "LD_PRELOAD")


def describe_environment() -> dict[str, Any]:
    """Versions and settings of this process (no host or user names)."""
    torch: Any = sys.modules.get("torch")
    return {
        "gobrrr": __version__,
        "python": platform.python_version(),
        "torch": None if torch is None else str(torch.__version__),
        "platform": f"{platform.system()} {platform.machine()}",
        "threads": None if torch is None else torch.get_num_threads(),
        "settings": {name: os.environ[name] for name in _SETTINGS if name in os.environ},
    }


def recorded_environment(timeline: Timeline) -> dict[str, Any]:
    """The version that reads a recording, and PyTorch's as the recording has it."""
    return {"gobrrr": __version__, "torch": timeline.torch_version or None}
