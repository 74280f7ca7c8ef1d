"""Fleets for tests: traces of ranks by hand, of which some are late."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trace_writing import rank_trace


def write_ranks(
    folder: Path,
    late_us: Mapping[int, float],
    *,
    world: int = 4,
    per_host: int | None = None,
    clock_s: float = 0.0,
) -> list[Path]:
    """A trace for each rank, whose loading takes ``late_us`` (at most 60) longer.

    With ``per_host`` they lie in a folder for each host. Clocks of ranks are ``clock_s`` apart.
    """
    paths = []
    for rank in range(world):
        trace = rank_trace(rank, late_us.get(rank, 0.0), world=world, group_size=world)
        for event in trace.events:
            event["ts"] += clock_s * rank * 1e6
        into = folder if per_host is None else folder / f"node{rank // per_host:02}"
        into.mkdir(parents=True, exist_ok=True)
        paths.append(trace.write(into, f"rank{rank}.json.gz"))
    return paths
