"""Ceilings that are there before a program runs, without anything of it in this process.

What probes allocate and free moves the thresholds of malloc for good (glibc keeps a freed block's
size as the one from which it maps memory anew): steps that run in the same process afterwards are
not those of the program alone. So they are measured in a process of their own, and found in the
cache by whoever needs them later.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

Progress = Callable[[str, int, int], None]

# Device files of GPUs: their ceilings are measured once it is known that the program uses one.
_GPU_FILES = ("/dev/nvidia0", "/dev/kfd", "/dev/dri/renderD128")
_FAILED = 1


def measure_beforehand(*, refresh: bool, threads: int | None, progress: Progress) -> bool:
    """Measures the processor's ceilings if no file may have them; whether that was done.

    Not where there is a GPU: which of the two a program uses, its steps will tell. A failure in
    there is not told: whoever needs ceilings later measures them, and tells.

    Args:
        refresh: measure even if there is a file.
        threads: of PyTorch's operators; the environment's by default.
        progress: as ``progress(what, done, total)`` while it measures.
    """
    if any(Path(file).exists() for file in _GPU_FILES) or not hasattr(os, "fork"):
        return False
    if not refresh and _may_be_cached(threads):
        return False
    if "torch" in sys.modules:
        # Its threads do not live on in a child, and this process is no program's alone.
        from gobrrr.devices.machine import ceilings_beforehand

        return ceilings_beforehand(refresh=refresh, progress=progress) is not None
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    code = _FAILED
    try:
        import torch

        from gobrrr.devices.machine import ceilings_beforehand

        if threads is not None:
            torch.set_num_threads(threads)
        ceilings_beforehand(refresh=refresh, progress=progress)
        code = 0
    except Exception:
        pass
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def _may_be_cached(threads: int | None) -> bool:
    """Whether there is a file for this PyTorch and as many threads; of which machine, it tells."""
    from gobrrr.devices.cache import cache_folder, is_old
    from gobrrr.devices.ceilings import BUSY

    version = _version_of_torch()
    wanted = str(threads or os.environ.get("OMP_NUM_THREADS", ""))
    name = f"ceilings-*-{wanted if wanted.isdecimal() else '*'}t-torch{version}-*.json"
    try:
        files = list(cache_folder().glob(name))
        return version == "" or any(BUSY not in f.read_text() or not is_old(f) for f in files)
    except OSError:
        return False


def _version_of_torch() -> str:
    """As in the names of cached files, read without importing PyTorch; empty where it is not."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return ""
    try:
        text = (Path(spec.origin).parent / "version.py").read_text()
    except OSError:
        return ""
    found = re.search(r"__version__ = '([^']+)'", text)
    return re.sub(r"[^a-z0-9.]+", "-", found[1].lower()) if found else ""
