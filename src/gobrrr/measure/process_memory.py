"""The memory that this process may still take, and how much it has taken."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CDLL
from importlib import import_module
from pathlib import Path
from typing import Any


def _limits() -> Any:
    try:
        return import_module("resource")
    except ImportError:  # Windows has no such limits.
        return None


_RESOURCE = _limits()

# From malloc.h: how much may lie free at the end of the heap (M_TRIM_THRESHOLD), and from which
# size on memory is no part of the heap (M_MMAP_THRESHOLD, at most 32 MiB).
_GNU_KEEPS = (-1, -3)
_KEPT_BYTES = 32 << 20


def free_memory_bytes() -> int | None:
    """What the machine has free, or a limit leaves if that is less: the process's, a container's.

    ``None`` where the system says none of them.
    """
    known = [_kilobytes("/proc/meminfo", "MemAvailable:"), _left_of_limit(), _left_of_container()]
    return min((value for value in known if value is not None), default=None)


# Limit and use of this control group, as version 2 and version 1 have them, where a container sees
# its own at the root (``cgroups(7)``).
_OF_CONTAINER = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)


def _left_of_container(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    for limit, used in _OF_CONTAINER:
        try:
            return int((root / limit).read_text()) - int((root / used).read_text())
        except (OSError, ValueError):
            # Not there, or "max": no limit.
            continue
    return None


@contextmanager
def limited_memory(limit_bytes: int) -> Iterator[None]:
    """Lets this process take ``limit_bytes`` more than it has; beyond it ``MemoryError`` is raised.

    By the limit on a process's data (``setrlimit(2)``, RLIMIT_DATA: private writable memory, since
    Linux 4.7), which readers look at beforehand. Without effect where a system has no such limit.
    """
    taken = _data_bytes()
    if taken is None:
        yield
        return
    soft, hard = _RESOURCE.getrlimit(_RESOURCE.RLIMIT_DATA)
    known = [value for value in (soft, hard) if value != _RESOURCE.RLIM_INFINITY]
    _RESOURCE.setrlimit(_RESOURCE.RLIMIT_DATA, (min([taken + limit_bytes, *known]), hard))
    try:
        yield
    finally:
        _RESOURCE.setrlimit(_RESOURCE.RLIMIT_DATA, (soft, hard))


def peak_memory_bytes() -> int | None:
    """The most memory that this process has had; ``None`` where the system does not say."""
    if _RESOURCE is None:
        return None
    peak: int = _RESOURCE.getrusage(_RESOURCE.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def keep_freed_memory() -> bool:
    """Lets this process use its freed memory again, rather than give it back and ask for it anew.

    For one that reads many files of a size, each into about as much memory as the one before: the
    system need not clear it for every file. Most that the process has at a time stays what it is.

    Returns:
        Whether it will: only the allocator of the GNU C library can be told (``mallopt(3)``).
    """
    try:
        set_option = CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        # Musl, macOS, Windows.
        return False
    return all(set_option(option, _KEPT_BYTES) == 1 for option in _GNU_KEEPS)


def _left_of_limit() -> int | None:
    taken = _data_bytes()
    if taken is None:
        return None
    soft, _ = _RESOURCE.getrlimit(_RESOURCE.RLIMIT_DATA)
    return None if soft == _RESOURCE.RLIM_INFINITY else max(0, soft - taken)


def _data_bytes() -> int | None:
    """Private writable memory of this process; ``None`` where it cannot be limited either."""
    return None if _RESOURCE is None else _kilobytes("/proc/self/status", "VmData:")


def _kilobytes(path: str, key: str) -> int | None:
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None
