"""Which processor this is: name, memory, cores, caches, instruction sets."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gobrrr.devices.identity import Cache, DeviceIdentity

_SYSTEM_CPUS = Path("/sys/devices/system/cpu")
_CPU_FLAGS = (
    "avx2",
    "fma",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "avx_vnni",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
    "amx_fp16",
    "asimd",
    "sve",
    "sve2",
    "bf16",
    "i8mm",
)


def identify_processor() -> DeviceIdentity:
    """The processor as this process may use it."""
    cpus = usable_cpus()
    return DeviceIdentity(
        name=_cpu_name(),
        kind="cpu",
        memory_bytes=_memory_bytes(),
        cores=len({_core_of(cpu) for cpu in cpus}) if cpus else None,
        threads=len(cpus) or os.cpu_count(),
        caches=read_caches(_SYSTEM_CPUS / f"cpu{cpus[0]}" / "cache") if cpus else _mac_caches(),
        isa=_isa(),
    )


def usable_cpus() -> list[int]:
    """Hardware threads this process may run on, one of each core first; empty if unknown."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    seen: set[tuple[str, str]] = set()
    first: list[int] = []
    siblings: list[int] = []
    for cpu in sorted(os.sched_getaffinity(0)):
        core = _core_of(cpu)
        (siblings if core in seen else first).append(cpu)
        seen.add(core)
    return first + siblings


def _core_of(cpu: int) -> tuple[str, str]:
    topology = _SYSTEM_CPUS / f"cpu{cpu}" / "topology"
    package, core = _read(topology / "physical_package_id"), _read(topology / "core_id")
    # Where the kernel gives no topology every hardware thread counts as a core.
    return (package, core) if core else ("", f"cpu{cpu}")


def read_caches(folder: Path) -> tuple[Cache, ...]:
    """Data caches that Linux lists under ``/sys/devices/system/cpu/cpu0/cache``."""
    caches: dict[int, Cache] = {}
    for index in sorted(folder.glob("index*")):
        if _read(index / "type") not in ("Data", "Unified"):
            continue
        level, size = _read(index / "level"), _parse_size(_read(index / "size"))
        if level.isdigit() and size:
            shared = len(list(_parse_cpu_list(_read(index / "shared_cpu_list")))) or 1
            caches[int(level)] = Cache(int(level), size, shared)
    return tuple(caches[level] for level in sorted(caches))


def cache_instances(cache: Cache, threads: int, cpus: Sequence[int]) -> int:
    """Instances of ``cache`` that ``threads`` threads on the first of ``cpus`` use together."""
    if cpus:
        shared = {
            _read(index / "shared_cpu_list")
            for cpu in cpus[:threads]
            for index in (_SYSTEM_CPUS / f"cpu{cpu}" / "cache").glob("index*")
            if _read(index / "level") == str(cache.level)
            and _read(index / "type") in ("Data", "Unified")
        }
        if shared:
            return len(shared)
    return -(-threads // max(cache.shared_by, 1))


def _parse_size(text: str) -> int:
    units = {"K": 1024, "M": 1024**2, "G": 1024**3}
    digits, unit = text.rstrip("KMG"), text[-1:]
    return int(digits) * units.get(unit, 1) if digits.isdigit() else 0


def _parse_cpu_list(text: str) -> Iterator[int]:
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        yield from range(int(low), int(high or low) + 1)


def _cpu_name() -> str:
    if sys.platform == "darwin":
        return _sysctl("machdep.cpu.brand_string") or platform.machine()
    fields = _cpu_fields()
    return fields.get("model name") or platform.processor() or platform.machine() or "CPU"


def _cpu_fields() -> dict[str, str]:
    """The first processor's lines of ``/proc/cpuinfo``."""
    fields: dict[str, str] = {}
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        key, colon, value = line.partition(":")
        if not colon:
            break
        fields[key.strip()] = value.strip()
    return fields


def _isa() -> tuple[str, ...]:
    fields = _cpu_fields()
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    if sys.platform == "darwin" and platform.machine() == "arm64":
        flags.add("asimd")
    return tuple(flag for flag in _CPU_FLAGS if flag in flags)


def _memory_bytes() -> int | None:
    sizes = []
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = _read(Path(limit))
        if text.isdigit():
            sizes.append(int(text))
    return min(sizes) if sizes else None


def _mac_caches() -> tuple[Cache, ...]:
    # Elsewhere there is no sysctl, or none with these names.
    found = []
    for level, names in (
        (1, ("hw.perflevel0.l1dcachesize", "hw.l1dcachesize")),
        (2, ("hw.perflevel0.l2cachesize", "hw.l2cachesize")),
    ):
        size = next(filter(None, map(_sysctl, names)), "")
        shared = (_sysctl("hw.perflevel0.cpusperl2") if level == 2 else "") or "1"
        if size.isdigit() and int(size):
            found.append(Cache(level, int(size), int(shared)))
    return tuple(found)


def _sysctl(name: str) -> str:
    try:
        done = subprocess.run(
            ["sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
