"""Plain data of the measuring rooms -> records of a diagnosis."""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.attribution.collectives import CollectiveFigures
from gobrrr.attribution.device.time import DeviceTimeNs
from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.schema import CollectiveRow, DeviceTime, LevelRow, Spread
from gobrrr.measure import Summary

# What ranks take that differs by less is told to be alike.
ALIKE = 0.01


def level_rows(ceilings: Ceilings) -> list[LevelRow]:
    """The memory levels, the smallest first."""
    return [
        LevelRow(name=v.name, capacity_bytes=v.capacity_bytes, rates=list(v.rates))
        for v in ceilings.levels
    ]


def spread_record(summary: Summary) -> Spread:
    """A summary in seconds."""
    return Spread(
        median=summary.median, mean=summary.mean, low=summary.low, high=summary.high, n=summary.n
    )  # fmt: skip


def device_time_record(figures: DeviceTimeNs) -> DeviceTime:
    """Whole-window figures in seconds."""
    return DeviceTime(
        window_s=figures.window_ns / 1e9,
        busy_s=figures.busy_ns / 1e9,
        compute_kernels_s=figures.compute_kernels_ns / 1e9,
        collectives_s=figures.collectives_ns / 1e9,
        exposed_collectives_s=figures.exposed_collectives_ns / 1e9,
        exposed_copies_s=figures.exposed_copies_ns / 1e9,
    )


def collective_rows(figures: Sequence[CollectiveFigures]) -> list[CollectiveRow]:
    """Collectives as records; times in seconds."""
    return [
        CollectiveRow(
            name=f.name,
            bytes=f.bytes_moved,
            group_size=f.group_size,
            ranks=list(f.ranks),
            calls=f.calls,
            time_s=(sum(f.exposed_ns) + sum(f.overlapped_ns)) / len(f.ranks) * 1e-9,
            exposed_s=sum(f.exposed_ns) / len(f.ranks) * 1e-9,
            overlapped_s=sum(f.overlapped_ns) / len(f.ranks) * 1e-9,
            transfer_s=seconds(f.transfer_ns),
            skew_s=seconds(f.skew_ns),
            algorithm_bytes_per_s=f.algorithm_bytes_per_s,
            bus_bytes_per_s=f.bus_bytes_per_s,
            last_rank=f.last_rank,
            duration_s=[ns * 1e-9 for ns in f.duration_ns],
        )
        for f in figures
    ]


def seconds(ns: float | None) -> float | None:
    """Nanoseconds as seconds; unknown stays unknown."""
    return None if ns is None else ns * 1e-9


def shown_rank_notice(rank: int, which: str) -> str:
    """That a diagnosis of several ranks is, but for what compares them, that of one."""
    return f"Everything but the tables of ranks and collectives is about rank {rank}, {which}."
