"""A plan of meshes for a terminal, and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from gobrrr.prediction.mesh.plan_candidates import LeftOut, PlannedMesh
from gobrrr.prediction.mesh.step import Communication
from gobrrr.prediction.plan import Plan
from gobrrr.reports.plain_table import plain_lines
from gobrrr.reports.tables import Column, Row, TextTable
from gobrrr.timeline.quantities import share, si, significant, time_text

# Reasons for meshes left out that are printed; all are in the JSON.
_REASONS = 4
_SHOWN = ("compute", "memory")


def plan_text(plan: Plan, name: str, width: int = 80) -> str:
    """The best meshes with their split and memory, why the next is slower, what was left out."""
    tried = len(plan.best) + len(plan.others)
    hosts = "1 host" if plan.hosts == 1 else f"{plan.hosts} hosts"
    left_out = sum(each.meshes for each in plan.left_out)
    said = (
        f"{name} on {plan.devices} {plan.device} in {hosts}: "
        f"{f'{tried} meshes fit' if tried != 1 else '1 mesh fits'}, {left_out} left out"
    )
    lines = [*_wrapped([said], width)]
    lines += [*_wrapped([f"! {notice}" for notice in plan.notices], width), ""]
    lines += plain_lines(_table(plan.best))
    for number, row in enumerate(plan.best, 1):
        lines += ["", *_wrapped([f"{number}. {row.mesh}: {_speed(row)}"], width)]
        lines += _wrapped(_details(row), width, "   ")
    following = plan.others[:1]
    if following and following[0].slower_because:
        lines += ["", f"The next one, {following[0].mesh}:"]
        lines += _wrapped([f"{following[0].slower_because}."], width, "   ")
    if plan.left_out:
        lines += ["", "Left out:"]
        lines += _wrapped(_reasons(plan.left_out), width, "   ")
    return "".join(line + "\n" for line in lines)


def plan_json(plan: Plan, name: str) -> bytes:
    """The whole plan; times in seconds, sizes in bytes."""

    def row(each: PlannedMesh) -> dict[str, Any]:
        return {
            "mesh": str(each.mesh),
            **each.mesh.sizes,
            "step_s": each.step_s,
            "low_s": each.low_s,
            "high_s": each.high_s,
            "host_bound": each.host_bound,
            "batches_per_s": each.batches_per_s,
            "tokens_per_s": each.tokens_per_s,
            "memory": {**each.memory.by_kind(), "peak": each.memory.peak},
            "parts_s": dict(each.parts_s),
            "communication": [asdict(found) for found in each.communication],
            "microbatches": each.microbatches,
            "schedule": each.schedule,
            "pipeline_waits": each.waits,
            "slowest_stage": each.slowest_stage,
            "joules": each.joules,
            "tokens_per_joule": each.tokens_per_joule,
            "slower_because": each.slower_because,
        }

    return msgspec.json.encode(
        {
            "name": name,
            "device": plan.device,
            "devices": plan.devices,
            "hosts": plan.hosts,
            "best": [row(each) for each in plan.best],
            "others": [row(each) for each in plan.others],
            "left_out": [asdict(each) for each in plan.left_out],
            "notices": list(plan.notices),
        }
    )


def _table(rows: Sequence[PlannedMesh]) -> TextTable:
    tokens = any(row.tokens_per_s is not None for row in rows)
    columns = (
        Column("mesh", number=False),
        Column("step"),
        Column("tokens/s" if tokens else "batches/s"),
        Column("compute"),
        Column("memory"),
        Column("exposed"),
        Column("per rank"),
    )

    def cells(row: PlannedMesh) -> Row:
        parts = dict(row.parts_s)
        exposed = sum(s for name, s in parts.items() if name.startswith("exposed "))
        rate = si(row.tokens_per_s) if tokens else significant(row.batches_per_s)
        split = [share(parts.get(name, 0.0), row.step_s) for name in _SHOWN]
        return Row(
            (
                str(row.mesh),
                time_text(row.step_s),
                rate,
                *split,
                share(exposed, row.step_s),
                si(row.memory.peak, "B"),
            )
        )

    return TextTable("", columns, tuple(cells(row) for row in rows))


def _speed(row: PlannedMesh) -> str:
    spread = ""
    if row.low_s is not None and row.high_s is not None:
        bound = "host-bound, " if row.host_bound else ""
        spread = f" ({bound}{time_text(row.low_s)} to {time_text(row.high_s)})"
    steps = significant(1.0 / row.step_s)
    found = f"{time_text(row.step_s)} per step{spread}, {steps} steps per second"
    if row.tokens_per_joule is not None:
        found += f", {significant(row.tokens_per_joule)} tokens per joule"
    return found


def _details(row: PlannedMesh) -> list[str]:
    memory = row.memory.by_kind()
    held = ", ".join(f"{name} {si(size, 'B')}" for name, size in memory.items() if size)
    exposed = [
        f"{time_text(each.exposed_s)} {_what(each)} in {each.group} ({each.phase})"
        for each in row.communication
        if each.exposed_s > 0
    ]
    found = [f"Exposed communication: {', '.join(exposed[:3]) or 'none'}.", f"Memory: {held}."]
    parts = ", ".join(f"{name} {time_text(s)}" for name, s in row.parts_s)
    found.insert(0, f"The step: {parts}.")
    if row.waits is not None and row.slowest_stage is not None:
        found.insert(
            1,
            f"Pipeline: {row.microbatches} microbatches ({row.schedule}); largest bubble of a "
            f"stage: {share(row.waits, 1.0)} of its passes; the last to update is stage "
            f"{row.slowest_stage + 1} of {row.mesh.pp}.",
        )
    return [*found, f"{row.slower_because}."] if row.slower_because else found


def _what(found: Communication) -> str:
    """A stage waits for the others where it would send or receive."""
    return "waits and sends" if found.kind == "send" else found.kind.replace("_", " ")


def _reasons(left_out: Sequence[LeftOut]) -> list[str]:
    # Meshes that are left out for the same reason share a line.
    meshes: dict[str, list[str]] = {}
    for each in left_out:
        meshes.setdefault(each.reason, []).append(each.mesh)
    told = list(meshes.items())[:_REASONS]
    shown = [f"{'; '.join(those)}: {reason}" for reason, those in told]
    shown_of = {reason for reason, _ in told}
    more = sum(each.meshes for each in left_out if each.reason not in shown_of)
    return [*shown, f"and {more} more (--json PATH lists all)"] if more else shown


def _wrapped(sentences: Sequence[str], width: int, indent: str = "") -> list[str]:
    return [
        line
        for sentence in sentences
        for line in textwrap.wrap(
            sentence,
            width,
            initial_indent=indent,
            subsequent_indent=f"{indent}  ",
            break_on_hyphens=False,
        )
    ]
