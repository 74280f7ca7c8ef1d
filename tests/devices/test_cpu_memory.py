from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from gobrrr.devices import Cache, Ceiling, DeviceIdentity, MemoryLevel
from gobrrr.devices.cpu.memory import LevelPlan, build_levels, effective_capacity, plan_levels
from gobrrr.devices.native import NativeKernels

KIB, MIB = 1024, 1024**2


def cpu(*caches: Cache, memory_bytes: int | None = 32 << 30) -> DeviceIdentity:
    return DeviceIdentity("A CPU", "cpu", memory_bytes, 2, 2, caches)


def test_working_sets_lie_within_their_level() -> None:
    device = cpu(Cache(1, 32 * KIB, 1), Cache(2, MIB, 1), Cache(3, 32 * MIB, 8))
    assert plan_levels(device, 2, []) == [
        # two private L1: 64 KiB; sets from an eighth to a half
        LevelPlan("l1", 64 * KIB, (8 * KIB, 32 * KIB)),
        LevelPlan("l2", 2 * MIB, (256 * KIB, MIB)),
        # at least twice the L2: 4 MiB is also an eighth
        LevelPlan("l3", 32 * MIB, (4 * MIB, 16 * MIB)),
        # four times the L3
        LevelPlan("dram", None, (128 * MIB,)),
    ]


def test_a_large_cache_needs_a_larger_set_within_an_eighth_of_memory() -> None:
    device = cpu(Cache(3, 256 * MIB, 64))
    assert plan_levels(device, 2, [])[-1].sets_bytes == (1024 * MIB,)
    small = cpu(Cache(3, 256 * MIB, 64), memory_bytes=4 << 30)
    assert plan_levels(small, 2, [])[-1].sets_bytes == (512 * MIB,)


def test_a_cache_too_close_to_the_one_before_is_no_level() -> None:
    # Skylake-X: 28 MiB of private L2 in 28 cores, 38.5 MiB of L3.
    device = cpu(Cache(2, MIB, 1), Cache(3, int(38.5 * MIB), 28))
    assert [level.name for level in plan_levels(device, 28, [])] == ["l2", "dram"]


def test_no_caches_leaves_dram() -> None:
    assert plan_levels(cpu(), 2, []) == [LevelPlan("dram", None, (128 * MIB,))]


@dataclass
class Sweep:
    """Rates of reads by working set: ``inside`` up to ``holds``, then ``outside``."""

    holds: int
    inside: float
    outside: float
    asked: list[int] = field(default_factory=list)

    def stream(self, kind: str, bytes_per_thread: int, *, threads: int, **_: Any) -> float:
        assert kind == "read"
        self.asked.append(bytes_per_thread * threads)
        return self.inside if bytes_per_thread * threads <= self.holds else self.outside


def held(sweep: Sweep, inner: float = 150.0, outer: float = 30.0) -> int | None:
    plan = LevelPlan("l3", 32 * MIB, (4 * MIB,))
    return effective_capacity(cast("NativeKernels", sweep), plan, inner, outer, 2)


def test_capacity_is_where_reads_slow_down() -> None:
    # Steps of 2**(1/4) from 16 MiB: 16, 19.03, 22.63, 26.9, ...; 24 MiB hold the third.
    found = held(Sweep(24 * MIB, 150.0, 30.0))
    assert found == int(32 * MIB * 2**-0.5)


def test_capacity_cannot_be_told_from_rates_that_are_close() -> None:
    sweep = Sweep(24 * MIB, 150.0, 120.0)
    assert held(sweep, 150.0, 120.0) is None
    assert sweep.asked == []


def test_capacity_stays_as_listed_if_reads_never_slow_down() -> None:
    assert held(Sweep(1 << 40, 150.0, 30.0)) is None


def test_half_of_what_the_system_lists_is_not_held() -> None:
    # Another guest of the host has most of the shared cache: nothing to base a capacity on.
    assert held(Sweep(MIB, 150.0, 30.0)) is None


def row(name: str, value: float) -> tuple[str, Ceiling]:
    return name, Ceiling(name, value, "B/s", "measured", "test")


def test_levels_from_rows_nearer_never_slower() -> None:
    plans = [
        LevelPlan("l1", 1, (1,)),
        LevelPlan("l2", 2 * MIB, (1,)),
        LevelPlan("dram", None, (1,)),
    ]
    rows = dict(
        [
            row("memory.l1.read", 500.0),
            row("memory.l2.read", 100.0),
            row("memory.l2.copy", 90.0),
            row("memory.l2.write", 10.0),
            row("memory.dram.read", 30.0),
            row("memory.dram.copy", 25.0),
            row("memory.dram.write", 20.0),
            row("memory.dram.update", 45.0),
        ]
    )
    assert build_levels(plans, rows, {"l1": 1, "l2": 2 * MIB}) == (
        # write: the DRAM's 20 rather than 10; update: DRAM's, none was measured
        MemoryLevel("l2", 2 * MIB, ((0.0, 100.0), (0.5, 90.0), (1.0, 20.0)), 45.0),
        MemoryLevel("dram", None, ((0.0, 30.0), (0.5, 25.0), (1.0, 20.0)), 45.0),
    )


def test_no_rows_no_levels() -> None:
    assert build_levels([LevelPlan("dram", None, (1,))], {}, {}) == ()


@pytest.mark.torch
def test_pytorchs_own_streams() -> None:
    torch = pytest.importorskip("torch")
    from gobrrr.devices.cpu.memory import torch_streams

    rows = {found.name: found for found in torch_streams(torch, LevelPlan("l3", 1, (MIB,)))}
    assert set(rows) == {
        f"memory.l3.{kind}" for kind in ("read", "write", "update", "copy", "triad")
    }
    assert all(found.value > 0 and found.unit == "B/s" for found in rows.values())
    assert rows["memory.l3.copy"].source == "copy_ over 1 MiB"
