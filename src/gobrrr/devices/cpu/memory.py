"""How fast this CPU moves bytes, level by level, and how much each level holds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gobrrr.devices.ceilings import Ceiling, MemoryLevel
from gobrrr.devices.cpu.compute import float32_on_cpu
from gobrrr.devices.cpu.identity import cache_instances
from gobrrr.devices.identity import DeviceIdentity
from gobrrr.devices.native import NativeKernels, Stream
from gobrrr.timeline.quantities import binary_size

STREAMS: tuple[Stream, ...] = ("read", "write", "copy", "triad", "update", "copy_nontemporal")

# Share of bytes that are written, by stream: the mixes of a level's rates.
_WRITE_FRACTION = {"read": 0.0, "triad": 1 / 3, "copy": 0.5, "write": 1.0}

_TRIAL_S = 0.008
_TRIALS = 5
_LEAST_DRAM_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class LevelPlan:
    """Where a level is measured.

    Attributes:
        name: ``l1``, ``l2``, ``l3``, ``dram``.
        capacity_bytes: of all instances that the threads use; ``None`` for DRAM.
        sets_bytes: working sets of all threads together that lie in it.
    """

    name: str
    capacity_bytes: int | None
    sets_bytes: tuple[int, ...]


def plan_levels(device: DeviceIdentity, threads: int, cpus: Sequence[int]) -> list[LevelPlan]:
    """Levels and the working sets that show them, from the caches that the system lists.

    A cache level's sets are at least twice the level before and at most half the level itself; a
    cache smaller than four times the one before shows no level of its own. DRAM's set is four
    times the last cache, 128 MiB at least, an eighth of memory at most.
    """
    levels: list[LevelPlan] = []
    before = 0
    for cache in device.caches:
        capacity = cache.size_bytes * cache_instances(cache, threads, cpus)
        if capacity < 4 * before:
            continue
        sets = {capacity // 2, max(2 * before, capacity // 8)}
        levels.append(
            LevelPlan(
                f"l{cache.level}", capacity, tuple(sorted(s for s in sets if s <= capacity // 2))
            )
        )
        before = capacity
    dram = max(4 * before, _LEAST_DRAM_BYTES)
    if device.memory_bytes:
        dram = min(dram, device.memory_bytes // 8)
    return [*levels, LevelPlan("dram", None, (dram,))]


def native_streams(
    native: NativeKernels, level: LevelPlan, threads: int, suffix: str = ""
) -> Iterator[Ceiling]:
    """Best bandwidth of each stream in one level, over its working sets.

    ``suffix`` ends the rows' names: ``.1thread`` for one thread beside all.
    """
    for kind in STREAMS:
        best: tuple[float, int] | None = None
        for size in level.sets_bytes:
            try:
                rate = native.stream(
                    kind, size // threads, threads=threads, seconds=_TRIAL_S, trials=_TRIALS
                )
            except MemoryError:
                # PyTorch's own streams remain, on half as much.
                continue
            if rate is not None and (best is None or rate > best[0]):
                best = (rate, size)
        if best is not None:
            yield _bandwidth(f"memory.{level.name}.{kind}{suffix}", best[0], "C++ loop", best[1])


def _bandwidth(name: str, value: float, by: str, size: int) -> Ceiling:
    return Ceiling(name, value, "B/s", "measured", f"{by} over {binary_size(size)}")


def torch_streams(torch: Any, level: LevelPlan) -> Iterator[Ceiling]:
    """PyTorch's own copy, sum, addition, fill and scaling in place, on arrays that exist already.

    Where they beat the loops (or there are none) they are the ceiling: a ceiling below what the
    framework reaches is none.
    """
    for size in level.sets_bytes[-1:]:
        half, third = (
            torch.ones(max(1, size // 4 // parts), **float32_on_cpu(torch)) for parts in (2, 3)
        )
        other_half, second, out = torch.empty_like(half), torch.ones_like(third), third.clone()
        whole = torch.ones(size // 4, **float32_on_cpu(torch))
        for kind, by, moved, call in (
            ("read", "torch.sum", size, whole.sum),
            ("write", "fill_", size, lambda whole=whole: whole.fill_(1.0)),
            ("update", "mul_", 2 * size, lambda whole=whole: whole.mul_(1.0)),
            ("copy", "copy_", size, lambda a=other_half, b=half: a.copy_(b)),
            ("triad", "torch.add", size, lambda a=third, b=second, c=out: torch.add(a, b, out=c)),
        ):
            rate = moved / _best_seconds(call)
            yield _bandwidth(f"memory.{level.name}.{kind}", rate, by, size)


def _best_seconds(call: Callable[[], object]) -> float:
    best = math.inf
    end = time.perf_counter() + _TRIAL_S * _TRIALS
    for repeat in range(1000):
        start = time.perf_counter()
        call()
        now = time.perf_counter()
        # The first call wakes threads and caches.
        if repeat:
            best = min(best, now - start)
        if repeat >= 3 and now > end:
            break
    return best


def effective_capacity(
    native: NativeKernels, level: LevelPlan, inner_rate: float, outer_rate: float, threads: int
) -> int | None:
    """The working set up to which a level keeps its rate, found by a sweep; in bytes.

    That is where the rate of reads falls through the geometric mean of this level's and the next
    one's. ``None`` if the two rates are too close to tell (under 1.5x), or if the rate has not
    fallen at twice the capacity that the system lists.
    """
    if level.capacity_bytes is None or inner_rate < 1.5 * outer_rate:
        return None
    border = math.sqrt(inner_rate * outer_rate)
    held: int | None = None
    for step in range(-4, 5):
        size = int(level.capacity_bytes * 2 ** (step / 4))
        # Slow once may be another program; slow three times is the level's end.
        for _ in range(3):
            rate = native.stream(
                "read", size // threads, threads=threads, seconds=_TRIAL_S, trials=_TRIALS
            )
            if rate is None:
                return None
            if rate >= border:
                break
        else:
            return held
        held = size
    return None


def build_levels(
    plans: Sequence[LevelPlan], rows: Mapping[str, Ceiling], capacities: Mapping[str, int]
) -> tuple[MemoryLevel, ...]:
    """Levels from the measured rows; without the first cache, which holds no whole tensor.

    The nearer level's rate is never below a farther one's: noise, or a write that is slow in a
    cache because the line moves on to the next.
    """
    levels: list[MemoryLevel] = []
    floor: dict[float, float] = {}
    update_floor = 0.0
    for plan in reversed(plans):
        if plan.name == "l1":
            continue
        for kind, fraction in _WRITE_FRACTION.items():
            row = rows.get(f"memory.{plan.name}.{kind}")
            if row is not None:
                floor[fraction] = max(floor.get(fraction, 0.0), row.value)
        update = rows.get(f"memory.{plan.name}.update")
        update_floor = max(update_floor, update.value if update else 0.0)
        if not floor:
            continue
        capacity = None if plan.capacity_bytes is None else capacities[plan.name]
        rates = tuple(sorted(floor.items()))
        levels.append(MemoryLevel(plan.name, capacity, rates, update_floor or None))
    return tuple(reversed(levels))
