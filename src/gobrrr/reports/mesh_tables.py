"""A predicted step on a mesh: what its ranks communicate, and what one of them holds."""

from __future__ import annotations

import textwrap
from typing import Any

from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.reports.plain_table import plain_lines
from gobrrr.reports.tables import Column, Row, TextTable
from gobrrr.timeline.quantities import share, si, significant, time_text

_MEMORY = ("weights", "gradients", "optimizer", "activations", "buffers")
WIDTH = 80


def mesh_text(diagnosis: Diagnosis) -> str:
    """The tables of a mesh, with a line before them; empty for any other diagnosis."""
    mesh = diagnosis.source.get("mesh")
    if not isinstance(mesh, dict):
        return ""
    step_s = diagnosis.accounted_s
    lines = [
        "",
        f"Mesh of {mesh['devices']} devices on {_hosts(mesh['hosts'])}: "
        f"{', '.join(f'{name}={mesh[name]}' for name in _dimensions(mesh))}",
        *_pipeline(mesh),
        f"Exposed communication: {time_text(mesh['exposed_s'])}, "
        f"{share(mesh['exposed_s'], step_s)} of the step",
        f"The whole job: {rates(mesh)}",
        "",
        *_communication(mesh["communication"], step_s),
        "",
        *memory_lines(mesh["memory"]),
    ]
    return "".join(line + "\n" for line in lines)


def _dimensions(mesh: dict[str, Any]) -> list[str]:
    """Those that are told: a pipeline only where there is one."""
    return [name for name in ("pp", "dp", "fsdp", "tp") if name != "pp" or mesh.get("pp", 1) > 1]


def _pipeline(mesh: dict[str, Any]) -> list[str]:
    """What its stages wait for each other, where it is a pipeline."""
    found = mesh.get("pipeline")
    if found is None:
        return []
    waits = [share(wait, found["seconds"]) for wait in found["bubble_s"]]
    last = found["slowest_stage"]
    text = (
        f"Pipeline: {found['microbatches']} microbatches ({found['schedule']}) in "
        f"{time_text(found['seconds'])}; bubble by stage: {', '.join(waits)}; the last to update "
        f"is stage {last + 1} of {mesh['pp']} ({time_text(found['update_s'][last])})"
    )
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ")


def memory_lines(memory: dict[str, Any]) -> list[str]:
    """What one rank holds, and what for."""
    parts = ", ".join(f"{name} {si(memory[name], 'B')}" for name in _MEMORY if memory[name])
    text = f"Memory of one rank at its peak: {si(memory['peak'], 'B')} ({parts})"
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ")


def rates(mesh: dict[str, Any]) -> str:
    """Steps per second, and tokens where they are known."""
    text = f"{significant(mesh['steps_per_s'])} steps per second"
    if mesh["tokens_per_s"] is not None:
        text += f", {si(mesh['tokens_per_s'])} tokens per second"
    return text


def _hosts(count: int) -> str:
    return "1 host" if count == 1 else f"{count} hosts"


def _communication(rows: list[dict[str, Any]], step_s: float) -> list[str]:
    table = TextTable(
        title="",
        columns=(
            Column("group", number=False),
            Column("collective", number=False),
            Column("phase", number=False),
            Column("calls"),
            Column("bytes"),
            Column("time"),
            Column("exposed"),
            Column("of step"),
        ),
        rows=tuple(
            Row(
                (
                    f"{row['group']} ({row['ranks']})",
                    row["kind"].replace("_", " "),
                    row["phase"],
                    str(row["calls"]),
                    si(row["n_bytes"], "B"),
                    time_text(row["time_s"]),
                    time_text(row["exposed_s"]),
                    share(row["exposed_s"], step_s),
                )
            )
            for row in rows
        ),
    )
    return plain_lines(table)
