"""Which rank of which job this process is, as its environment tells."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gobrrr.live.rank_of_job import RankOfJob


def rank_of_job(
    environment: Mapping[str, str], program: str, perfetto: Path | None = None
) -> RankOfJob:
    """The process as a rank of the job that the environment tells of, if it does.

    Raises:
        InputError: the environment contradicts itself.
    """
    if not environment.get("RANK") or not environment.get("WORLD_SIZE"):
        return RankOfJob(None, perfetto)
    # A process on its own brings nothing of it into the program's heap.
    from gobrrr.jobs.job import job_of

    return RankOfJob(job_of(environment, program), perfetto)
