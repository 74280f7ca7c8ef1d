"""What is to be said of a fleet: plain records, saved beside the tables as ``verdict.json``."""

from __future__ import annotations

from typing import Any

import msgspec


class Culprit(msgspec.Struct, frozen=True, kw_only=True):
    """A rank, or all ranks of a host, and why others wait for it; seconds per step.

    Attributes:
        ranks: one, or those of the host.
        host: where they run; ``None``: unknown.
        whole_host: it is the host that stands out, not one rank of it.
        caused_s: how long each other rank waits for it, the mean; ``None``: nothing was compared.
        share: of all waiting in the run.
        busier_s: by how much it is busier than the others, in the median of all pairs of steps.
        part: what takes it longer: ``"kernels"``, ``"memory.copies"`` or a leaf of overhead;
            ``None``: no part of its own step.
        leaf: the leaf within the part that is longest beyond the others'.
        excess_s: by how much the part is longer than the others' median.
        place: a line of the program, or an op with its module and phase; ``None``: unknown.
    """

    ranks: list[int]
    host: str | None = None
    whole_host: bool = False
    caused_s: float | None = None
    share: float | None = None
    busier_s: float = 0.0
    part: str | None = None
    leaf: str | None = None
    excess_s: float | None = None
    place: str | None = None


class HeatRow(msgspec.Struct, frozen=True, kw_only=True):
    """A rank, or some, in the map of ranks by cause; seconds per step by column."""

    label: str
    values_s: list[float]


class RunVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One run.

    Attributes:
        ranks: how many are compared.
        hosts: on how many machines; ``None``: their paths do not say.
        world_size: how many the traces speak of; ``None``: they do not.
        steps: how many each rank recorded, the median.
        step_s: of all steps of all ranks, the median; ``step_low_s`` and ``step_high_s`` the
            fifth and the ninety-fifth percentile.
        wait_s, transfer_s: exposed per step, means over the ranks; ``None``: not told apart.
        named: who stands out; ``None``: nobody.
        culprits: the ten ranks that others wait for most, the most first.
        groups: the columns of ``heat``, names of leaves or of levels.
        heat: ranks by cause.
        heat_of: what a row of it is: ``"rank"``, ``"host"`` or ``"ranks"``.
        step_times: how many steps of all ranks are in each bin, from ``histogram_low_s`` to
            ``histogram_high_s``.
        notices: what was left out, and why.
    """

    run: str
    ranks: int
    hosts: int | None = None
    world_size: int | None = None
    steps: float = 0.0
    step_s: float = 0.0
    step_low_s: float = 0.0
    step_high_s: float = 0.0
    wait_s: float | None = None
    transfer_s: float | None = None
    network_s: float = 0.0
    named: Culprit | None = None
    culprits: list[Culprit] = []
    groups: list[str] = []
    heat: list[HeatRow] = []
    heat_of: str = "rank"
    histogram_low_s: float = 0.0
    histogram_high_s: float = 0.0
    step_times: list[int] = []
    notices: list[str] = []


class FleetVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of a folder.

    Attributes:
        runs: by name.
        files: how many files were looked at; ``bytes`` of them as they lie there.
        read: how many of them were read this time, in ``read_s`` of all workers together, of which
            ``cpu_s`` on a processor.
        errors: the sentence of each file that could not be read.
        worker_bytes: the most memory that a worker has had; ``None``: unknown.
        merge_s: how long the merge took.
    """

    runs: list[RunVerdict] = []
    files: int = 0
    bytes: int = 0
    read: int = 0
    read_s: float = 0.0
    cpu_s: float = 0.0
    errors: list[str] = []
    worker_bytes: int | None = None
    merge_s: float = 0.0


class Answer(msgspec.Struct, frozen=True):
    """Rows of an answer to a question, under the names of their columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
