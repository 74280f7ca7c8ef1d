"""Ceilings that are there before a program runs, without anything of it in this process.

What probes allocate and free moves the thresholds of malloc for good (glibc keeps a freed block's
size as the one from which it maps memory anew): steps that run in the same process afterwards are
not those of the program alone. So they are measured in a process of their own, and found in the
cache by whoever needs them later.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

Progress = Callable[[str, int, int], None]

# Device files of GPUs, by what a PyTorch that can use them says of itself in ``torch/version.py``:
# their ceilings are measured once it is known that the program uses one.
_GPU_FILES = {"cuda": "/dev/nvidia0", "hip": "/dev/kfd", "xpu": "/dev/dri/renderD128"}
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
    version = _version_file_of_torch()
    if not version or _sees_gpu(version) or not hasattr(os, "fork"):
        return False
    if not refresh and _may_be_cached(version, threads):
        return False
    if "torch" in sys.modules:
        # Its threads do not live on in a child, and this process is no program's alone.
        from gobrrr.devices.machine import ceilings_beforehand

        return ceilings_beforehand(refresh=refresh, progress=progress) is not None
    for stream in (sys.stdout, sys.stderr):
        # What waits to be written would be written twice.
        stream.flush()
    child = os.fork()
    if child:
        try:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        except ChildProcessError:
            # Whoever started this process has the system forget ended ones.
            return True
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
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def _sees_gpu(version: str) -> bool:
    """Whether this PyTorch was built for a kind of GPU of which there is one."""
    return any(
        re.search(rf"^{kind}(: [^=]+)? = '", version, re.MULTILINE) and Path(file).exists()
        for kind, file in _GPU_FILES.items()
    )


def _may_be_cached(text: str, threads: int | None) -> bool:
    """Whether there is a file for this PyTorch and as many threads; of which machine, it tells."""
    from gobrrr.devices.cache import cache_folder, is_old
    from gobrrr.devices.ceilings import BUSY

    found = re.search(r"__version__ = '([^']+)'", text)
    version = re.sub(r"[^a-z0-9.]+", "-", found[1].lower()) if found else "*"
    wanted = str(threads or os.environ.get("OMP_NUM_THREADS", ""))
    name = f"ceilings-*-{wanted if wanted.isdecimal() else '*'}t-torch{version}-*.json"
    try:
        files = list(cache_folder().glob(name))
        return any(BUSY not in f.read_text() or not is_old(f) for f in files)
    except OSError:
        return False


def _version_file_of_torch() -> str:
    """What PyTorch says of itself, read without importing it; empty where that is not told."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return ""
    try:
        return (Path(spec.origin).parent / "version.py").read_text()
    except OSError:
        return ""
