"""What the process's memory allocator does with large blocks."""

from __future__ import annotations

import platform
from collections.abc import Mapping

# From this size on glibc maps a block anew at every allocation (DEFAULT_MMAP_THRESHOLD_MAX in
# malloc.c, 64 bit). Smaller ones come from its heap again once one of their size was freed.
ALWAYS_MAPPED_BYTES = 32 << 20
VARIABLES = ("GLIBC_TUNABLES", "LD_PRELOAD")


def mapped_from_bytes(environment: Mapping[str, str]) -> int | None:
    """The size from which every allocation maps fresh pages.

    ``None`` where that is not known: another C library, or an environment that sets the allocator.
    """
    if platform.libc_ver()[0] != "glibc" or any(environment.get(name) for name in VARIABLES):
        return None
    return ALWAYS_MAPPED_BYTES
