"""What a launcher (torchrun, accelerate) says of a process by its environment."""

from __future__ import annotations

from collections.abc import Mapping


def rank_of(environment: Mapping[str, str]) -> int:
    """Which rank of a job this process is; 0 for a process on its own."""
    rank = environment.get("RANK", "")
    return int(rank) if rank.isdecimal() and job_size(environment) > 1 else 0


def job_size(environment: Mapping[str, str]) -> int:
    """How many processes the job of this one has; 1 for a process on its own."""
    size = environment.get("WORLD_SIZE", "")
    return int(size) if size.isdecimal() and environment.get("RANK", "") else 1
