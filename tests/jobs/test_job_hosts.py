"""Which ranks share a host, by what launchers say of it."""

from __future__ import annotations

import pytest

from gobrrr.jobs.hosts import Place, place_of


def _slurm(**values: str) -> dict[str, str]:
    return {f"SLURM_{name}": value for name, value in values.items()}


STEP = _slurm(STEP_NUM_TASKS="8", JOB_ID="77", STEP_ID="0")


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({}, Place()),
        # torchrun
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, Place(1, 4)),
        ({"LOCAL_RANK": "1"}, Place(1)),
        ({"LOCAL_WORLD_SIZE": "four"}, Place()),
        # mpirun
        (
            {"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
             "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "PMIX_NAMESPACE": "prterun-a-17@1"},
            Place(1, 4, "prterun-a-17@1"),
        ),
        # One process that starts all ranks itself.
        ({"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, Place()),
        # srun
        (STEP | _slurm(STEP_TASKS_PER_NODE="4(x2)", NODEID="1", LOCALID="1", PROCID="5"),
         Place(1, 4, "77.0.")),
        (STEP | _slurm(STEP_TASKS_PER_NODE="3(x2),2", NODEID="2", LOCALID="1", PROCID="5"),
         Place(1, 2, "77.0.")),
        (STEP | _slurm(STEP_TASKS_PER_NODE="8", NODEID="0"), Place(None, 8, "77.0.")),
        (STEP | _slurm(NTASKS_PER_NODE="4"), Place(None, 4, "77.0.")),
        (_slurm(NTASKS="8", NTASKS_PER_NODE="4", LOCALID="1", PROCID="5"), Place(1, 4)),
        # Eight ranks do not fill nodes of three each.
        (STEP | _slurm(NTASKS_PER_NODE="3"), Place(None, None, "77.0.")),
        # In a batch script that starts the ranks itself each sees the script's own number.
        (_slurm(NTASKS="8", LOCALID="0", PROCID="0"), Place()),
        # A step of another size than the job has.
        (_slurm(STEP_NUM_TASKS="2", NTASKS="2", NTASKS_PER_NODE="1", LOCALID="0"), Place()),
        # What a script sets by hand counts first.
        ({"LOCAL_RANK": "3"} | STEP | _slurm(NTASKS_PER_NODE="4", LOCALID="1", PROCID="5"),
         Place(3, 4, "77.0.")),
    ],
)  # fmt: skip
def test_place_of_a_rank(environment: dict[str, str], place: Place) -> None:
    assert place_of({"RANK": "5", "WORLD_SIZE": "8"} | environment) == place
