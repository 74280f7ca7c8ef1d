"""The waterfall from the measured step to the speed of light: a layout of the leaves."""

from __future__ import annotations

from dataclasses import dataclass

from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.reports.quantities import share
from gobrrr.reports.tables import time_scale
from gobrrr.reports.words import PARTS

# Leaves under this share of the step share one row.
_LEAST_STEP = 0.005


@dataclass(frozen=True, slots=True)
class Fall:
    """One row of the waterfall: a bar from ``left``, ``width`` wide, in percent of the step."""

    label: str
    time: str
    share: str
    left: float
    width: float
    colour: str
    total: bool = False
    note: str = ""
    findings: tuple[int, ...] = ()


def percent_of(part: float, whole: float) -> float:
    """``part`` in percent of ``whole``, at most 100; 0 where either is nothing."""
    if not whole > 0 or not part > 0:
        return 0.0
    return round(min(100.0, 100.0 * part / whole), 3)


def waterfall_of(diagnosis: Diagnosis) -> tuple[tuple[Fall, ...], str]:
    """Measured, minus what is not work at a ceiling, largest first within a group."""
    scale = time_scale(diagnosis)
    leaves, step_s = diagnosis.leaves, diagnosis.accounted_s
    if not step_s > 0:
        return (), ""
    groups: list[tuple[str, list[tuple[str, str, str]]]] = [
        ("overhead", [(f"{p.label}", p.leaf, p.meaning) for p in PARTS["overhead"]]),
        (
            "memory",
            [(p.label, p.leaf, p.meaning) for p in PARTS["memory"] if p.leaf.count(".") == 1
             and not p.leaf.endswith("unmodelled")],
        ),
        ("memory", [("traffic below the bandwidth", "memory.device.below", "")]),
        (
            "compute",
            [("matrix below the roof", "compute.matrix.below", ""),
             ("vector below the roof", "compute.vector.below", "")],
        ),
        (
            "unmodelled",
            [("arithmetic without a roof", "compute.unmodelled", "no formula, or no ceiling"),
             ("traffic without a roof", "memory.unmodelled", "no formula, or no ceiling"),
             ("unmodelled", "unmodelled", "no formula, or no ceiling")],
        ),
    ]  # fmt: skip
    rows = [Fall("measured", scale.text(step_s), "100 %", 0.0, 100.0, "total", total=True)]
    left_s = step_s
    for colour, members in groups:
        known = [(label, leaf, note, leaves.get(leaf, 0.0)) for label, leaf, note in members]
        shown = [row for row in known if row[3] >= _LEAST_STEP * step_s]
        small_s = sum(row[3] for row in known if row not in shown and row[3] > 0)
        shown.sort(key=lambda row: -row[3])
        if small_s >= 0.1 * _LEAST_STEP * step_s:
            names = {"unmodelled": "rest without a roof", "compute": "rest below the roof"}
            shown.append((names.get(colour, f"other {colour}"), "", "", small_s))
        for label, leaf, note, time_s in shown:
            left_s -= time_s
            rows.append(
                Fall(
                    label, f"−{scale.text(time_s)}", share(time_s, step_s, 1),
                    percent_of(left_s, step_s), percent_of(time_s, step_s), colour, note=note,
                    findings=_findings_for(diagnosis, leaf),
                )
            )  # fmt: skip
    roofs_s = sum(time_s for name, time_s in leaves.items() if name.endswith(".roof"))
    light_s = diagnosis.speed_of_light_s
    if light_s is None:
        end = Fall(
            "work with a known roof", scale.text(roofs_s), share(roofs_s, step_s, 1), 0.0,
            percent_of(roofs_s, step_s), "total", total=True,
        )  # fmt: skip
        why = "There is no speed of light to state: too much kernel time has no known roof."
        return (*rows, end), why
    saved_s = roofs_s - light_s
    if saved_s > _LEAST_STEP * step_s:
        rows.append(
            Fall(
                "work that need not be done", f"−{scale.text(saved_s)}", share(saved_s, step_s, 1),
                percent_of(light_s, step_s), percent_of(saved_s, step_s), "work",
                note="unfused traffic, wider dtypes than needed",
            )
        )  # fmt: skip
    end = Fall(
        "speed of light", scale.text(light_s), share(light_s, step_s, 1), 0.0,
        percent_of(light_s, step_s), "total", total=True,
    )  # fmt: skip
    return (*rows, end), "This work at the ceilings of this device, and nothing else."


def _findings_for(diagnosis: Diagnosis, leaf: str) -> tuple[int, ...]:
    return tuple(i for i, f in enumerate(diagnosis.findings) if leaf and leaf in f.leaves)
