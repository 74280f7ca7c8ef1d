"""How many ranks of a job share this host, by what launchers say of it in the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

# "2(x3),1": two tasks on each of three nodes, and one on the next.
_TASKS = re.compile(r"(\d+)(?:\(x(\d+)\))?\Z")


@dataclass(frozen=True, slots=True)
class Place:
    """A rank among those of its host; ``None`` where the launcher does not tell.

    Attributes:
        rank: its number there, from 0.
        size: how many ranks this host has.
        start: what tells this start of the job from every other; ``""``: nothing does.
    """

    rank: int | None = None
    size: int | None = None
    start: str = ""


def place_of(environment: Mapping[str, str]) -> Place:
    """Where a rank is, by the first launcher that tells it.

    Those are torchrun (and scripts that set its variables), Open MPI, and SLURM. The last two count
    only where they have started as many processes as the job has ranks: a launcher may run inside
    an allocation that has another number of them.
    """
    size, rank = _number(environment, "LOCAL_WORLD_SIZE"), _number(environment, "LOCAL_RANK")
    start = ""
    for launcher in (_open_mpi, _slurm):
        found = launcher(environment)
        size = found.size if size is None else size
        rank = found.rank if rank is None else rank
        start = start or found.start
    return Place(rank, size, start)


def _open_mpi(environment: Mapping[str, str]) -> Place:
    """https://docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html."""
    if environment.get("OMPI_COMM_WORLD_SIZE") != environment["WORLD_SIZE"]:
        return Place()
    return Place(
        _number(environment, "OMPI_COMM_WORLD_LOCAL_RANK"),
        _number(environment, "OMPI_COMM_WORLD_LOCAL_SIZE"),
        environment.get("PMIX_NAMESPACE", ""),
    )


def _slurm(environment: Mapping[str, str]) -> Place:
    """https://slurm.schedmd.com/srun.html, "Output environment variables"."""
    world_size = environment["WORLD_SIZE"]
    is_step = environment.get("SLURM_STEP_NUM_TASKS") == world_size
    if not is_step and environment.get("SLURM_NTASKS") != world_size:
        return Place()
    # In a batch script that starts processes itself they all have the script's own number.
    is_task = environment.get("SLURM_PROCID") == environment["RANK"]
    start = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
    return Place(
        _number(environment, "SLURM_LOCALID") if is_task else None,
        _tasks_of_node(environment, int(world_size)),
        ".".join(environment.get(name, "") for name in start) if is_step else "",
    )


def _tasks_of_node(environment: Mapping[str, str], world_size: int) -> int | None:
    node = _number(environment, "SLURM_NODEID")
    tasks: list[int] = []
    for part in environment.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        found = _TASKS.match(part)
        if found is not None:
            tasks += [int(found[1])] * int(found[2] or 1)
    if node is not None and node < len(tasks) and sum(tasks) == world_size:
        return tasks[node]
    # What was asked for: nodes have fewer where the ranks do not fill them all.
    each = _number(environment, "SLURM_NTASKS_PER_NODE")
    return each if each and world_size % each == 0 else None


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isdecimal() else None
