"""The waterfall from the measured step to the speed of light: a layout of the leaves."""

from __future__ import annotations

from dataclasses import dataclass

from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.reports.tables import time_scale
from gobrrr.reports.words import PARTS
from gobrrr.timeline.quantities import share

# Leaves under this share of the step share one row; under a tenth of it that row is left out.
_LEAST_SHARE = 0.005
_NO_CEILING = "no formula, or no ceiling"


@dataclass(frozen=True, slots=True)
class _Leaf:
    label: str
    name: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Group:
    """Leaves of one colour; ``rest`` labels those too small for a row each."""

    colour: str
    rest: str
    leaves: tuple[_Leaf, ...]


_GROUPS: tuple[_Group, ...] = (
    _Group(
        "overhead",
        "other overhead",
        tuple(_Leaf(part.label, part.leaf, part.meaning) for part in PARTS["overhead"]),
    ),
    _Group(
        "memory",
        "other memory",
        tuple(
            _Leaf(part.label, part.leaf, part.meaning)
            for part in PARTS["memory"]
            if part.leaf and part.leaf != "memory.unmodelled"
        ),
    ),
    _Group(
        "memory",
        "memory traffic below the ceiling",
        (_Leaf("memory traffic below the ceiling", "memory.device.below"),),
    ),
    _Group(
        "compute",
        "arithmetic below the ceiling",
        (
            _Leaf("matrix below the ceiling", "compute.matrix.below"),
            _Leaf("vector below the ceiling", "compute.vector.below"),
        ),
    ),
    _Group(
        "unmodelled",
        "other unmodelled",
        (
            _Leaf("unmodelled arithmetic", "compute.unmodelled", _NO_CEILING),
            _Leaf("unmodelled memory traffic", "memory.unmodelled", _NO_CEILING),
            _Leaf("unmodelled ops", "unmodelled", _NO_CEILING),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Fall:
    """One row: a bar from ``left``, ``width`` wide, in percent of the step.

    ``findings`` are positions in ``Diagnosis.findings`` of those that act on this leaf.
    """

    label: str
    time_s: float
    time: str
    share: str
    left: float
    width: float
    colour: str
    total: bool = False
    note: str = ""
    findings: tuple[int, ...] = ()


def percent_of(part: float, whole: float) -> float:
    """``part`` in percent of ``whole``, 0 to 100; 0 where either is nothing."""
    if not whole > 0 or not part > 0:
        return 0.0
    return round(min(100.0, 100.0 * part / whole), 3)


def waterfall_of(diagnosis: Diagnosis) -> tuple[tuple[Fall, ...], str]:
    """Measured, minus all that is not work at a ceiling, down to that work; and a note on it.

    Within a group the largest leaf comes first. No rows for a step that took no time.
    """
    step_s, light_s = diagnosis.accounted_s, diagnosis.speed_of_light_s
    if not step_s > 0:
        return (), ""
    began = "measured" if diagnosis.step.time_s.n else "predicted"
    rows = [_total(diagnosis, began, step_s)]
    left_s = step_s
    for group in _GROUPS:
        for leaf, time_s in _drops(diagnosis, group):
            left_s -= time_s
            rows.append(_drop(diagnosis, leaf, time_s, left_s, group.colour))
    roofs_s = sum(s for name, s in diagnosis.leaves.items() if name.endswith(".roof"))
    if light_s is None:
        rows.append(_total(diagnosis, "work at the ceilings", roofs_s))
        if diagnosis.regime is None:
            return tuple(rows), "Where there is no verdict, no speed of light is given."
        return tuple(rows), ("The speed of light is unknown: too much kernel time is unmodelled.")
    avoidable_s = roofs_s - light_s
    if avoidable_s > _LEAST_SHARE * step_s:
        leaf = _Leaf("avoidable work", "", "unfused memory traffic, wider dtypes than needed")
        rows.append(_drop(diagnosis, leaf, avoidable_s, light_s, "work"))
    rows.append(_total(diagnosis, "speed of light", light_s))
    return tuple(rows), "This work at the ceilings of this device, and nothing else."


def _drops(diagnosis: Diagnosis, group: _Group) -> list[tuple[_Leaf, float]]:
    least_s = _LEAST_SHARE * diagnosis.accounted_s
    known = [(leaf, diagnosis.leaves.get(leaf.name, 0.0)) for leaf in group.leaves]
    shown = sorted((row for row in known if row[1] >= least_s), key=lambda row: -row[1])
    rest_s = sum(time_s for _, time_s in known if 0 < time_s < least_s)
    if rest_s >= 0.1 * least_s:
        shown.append((_Leaf(group.rest, ""), rest_s))
    return shown


def _drop(diagnosis: Diagnosis, leaf: _Leaf, time_s: float, left_s: float, colour: str) -> Fall:
    step_s = diagnosis.accounted_s
    return Fall(
        leaf.label,
        time_s,
        f"−{time_scale(diagnosis).text(time_s)}",
        share(time_s, step_s, 1),
        percent_of(left_s, step_s),
        percent_of(time_s, step_s),
        colour,
        note=leaf.note,
        findings=tuple(
            i for i, f in enumerate(diagnosis.findings) if leaf.name and leaf.name in f.leaves
        ),
    )


def _total(diagnosis: Diagnosis, label: str, time_s: float) -> Fall:
    step_s = diagnosis.accounted_s
    return Fall(
        label,
        time_s,
        time_scale(diagnosis).text(time_s),
        share(time_s, step_s),
        0.0,
        percent_of(time_s, step_s),
        "total",
        total=True,
    )
