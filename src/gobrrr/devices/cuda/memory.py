"""How fast a GPU moves bytes: its memory, and its shared cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from gobrrr.devices.ceilings import Ceiling, MemoryLevel
from gobrrr.devices.cuda.timing import MIB, Found, Gpu

_PATTERNS = (("read", 0.0), ("triad", 1 / 3), ("copy", 0.5), ("write", 1.0))
_LEAST_DRAM_BYTES = 1024 * MIB


def measure_memory(gpu: Gpu, found: Found, l2_bytes: int, total_bytes: int) -> None:
    """Add the rates of every pattern in memory and, if ``l2_bytes`` is known, in the L2 cache."""
    dram_bytes = int(min(max(16 * l2_bytes, _LEAST_DRAM_BYTES), total_bytes // 8))
    for pattern, (moved, call) in _streams(gpu, dram_bytes).items():
        rate = moved / gpu.seconds(call)
        found.add(f"memory.dram.{pattern}", rate, "B/s", f"torch, {dram_bytes // MIB} MiB")
    if l2_bytes < 4 * MIB:
        return
    # One pass over a cache is too short to time: the rate is the slope between two sizes, in
    # which the fixed cost of a kernel cancels.
    small, large = l2_bytes // 8, l2_bytes // 2
    small_streams, large_streams = _streams(gpu, small), _streams(gpu, large)
    for pattern, (large_moved, large_call) in large_streams.items():
        small_moved, small_call = small_streams[pattern]
        gained = slope(
            small_moved,
            gpu.seconds_without_launches(small_call),
            large_moved,
            gpu.seconds_without_launches(large_call),
        )
        source = f"torch, slope between {small // 1024} and {large // 1024} KiB"
        found.add(f"memory.l2.{pattern}", gained, "B/s", source)
    usable = _usable_l2_bytes(gpu, found, l2_bytes, small)
    if usable is not None:
        found.add("memory.l2.usable", float(usable), "B", "working set that keeps the cache's rate")


def _usable_l2_bytes(gpu: Gpu, found: Found, l2_bytes: int, small: int) -> int | None:
    """The working set up to which reads keep the cache's rate; ``None`` if it cannot be told.

    That is where their rate, less the fixed cost of a kernel, falls through the geometric mean of
    the cache's and the memory's. (A cache of two partitions can hold what both use twice.)
    """
    inner, outer = found.rows.get("memory.l2.read"), found.rows.get("memory.dram.read")
    if inner is None or outer is None or inner.value < 1.5 * outer.value:
        return None
    border = math.sqrt(inner.value * outer.value)
    moved, call = _streams(gpu, small)["read"]
    fixed_s = gpu.seconds_without_launches(call) - moved / inner.value
    held = None
    for eighths in range(4, 13):
        size = l2_bytes * eighths // 8
        moved, call = _streams(gpu, size)["read"]
        if moved < border * (gpu.seconds_without_launches(call) - fixed_s):
            return held
        held = size
    return held


def slope(small_bytes: float, small_s: float, large_bytes: float, large_s: float) -> float | None:
    """Bytes per second of what was moved more; ``None`` if it took no longer."""
    if large_s <= small_s:
        return None
    return (large_bytes - small_bytes) / (large_s - small_s)


def _streams(gpu: Gpu, set_bytes: int) -> dict[str, tuple[float, Callable[[], object]]]:
    """Bytes moved and the call, by pattern; each touches ``set_bytes`` in all."""
    torch = gpu.torch

    def array(share: int) -> Any:
        # Whole blocks of 16 bytes for vector loads.
        return torch.ones(max(set_bytes // share // 16 * 4, 4), device=gpu.device)

    whole, half, third = array(1), array(2), array(3)
    half_out, third_in, third_out = (
        torch.empty_like(half),
        torch.ones_like(third),
        torch.empty_like(third),
    )
    total = torch.empty((), device=gpu.device)
    return {
        "read": (4.0 * whole.numel(), lambda: torch.sum(whole, dim=0, out=total)),
        "triad": (12.0 * third.numel(), lambda: torch.add(third, third_in, out=third_out)),
        "copy": (8.0 * half.numel(), lambda: half_out.copy_(half)),
        "write": (4.0 * whole.numel(), lambda: whole.fill_(1.0)),
        "update": (8.0 * whole.numel(), lambda: whole.mul_(1.0)),
    }


def build_gpu_levels(rows: Mapping[str, Ceiling]) -> tuple[MemoryLevel, ...]:
    """Levels from measured rows; a nearer level is never slower than a farther one."""
    levels: list[MemoryLevel] = []
    floor: dict[float, float] = {}
    update_floor = 0.0
    for name in ("dram", "l2"):
        measured = {
            fraction: rows[f"memory.{name}.{pattern}"].value
            for pattern, fraction in _PATTERNS
            if f"memory.{name}.{pattern}" in rows
        }
        if not measured:
            continue
        for fraction, rate in measured.items():
            floor[fraction] = max(floor.get(fraction, 0.0), rate)
        update = rows.get(f"memory.{name}.update")
        update_floor = max(update_floor, update.value if update else 0.0)
        capacity = None
        if name == "l2":
            if "memory.l2.capacity" not in rows:
                continue
            capacity = int((rows.get("memory.l2.usable") or rows["memory.l2.capacity"]).value)
        levels.append(
            MemoryLevel(name, capacity, tuple(sorted(floor.items())), update_floor or None)
        )
    return tuple(reversed(levels))
