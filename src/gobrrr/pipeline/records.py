"""Plain data of the measuring rooms -> records of a diagnosis."""

from __future__ import annotations

from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.schema import CeilingRow, LevelRow, Spread
from gobrrr.measure import Summary


def ceiling_rows(ceilings: Ceilings) -> list[CeilingRow]:
    """All ceilings, in order."""
    return [
        CeilingRow(name=c.name, value=c.value, unit=c.unit, how=c.how, source=c.source)
        for c in ceilings.rows.values()
    ]


def level_rows(ceilings: Ceilings) -> list[LevelRow]:
    """The memory levels, the smallest first."""
    return [
        LevelRow(name=v.name, capacity_bytes=v.capacity_bytes, rates=list(v.rates))
        for v in ceilings.levels
    ]


def spread_record(summary: Summary) -> Spread:
    """A summary in seconds."""
    return Spread(
        median=summary.median, mean=summary.mean, low=summary.low, high=summary.high, n=summary.n
    )
