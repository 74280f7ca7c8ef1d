"""A known cause in a report: what it takes, where, what to change, and what to search for."""

from __future__ import annotations

from gobrrr.diagnosis.schema import Finding
from gobrrr.timeline.names import plain_name, short_source
from gobrrr.timeline.quantities import UNKNOWN, percent


def cause_lines(finding: Finding) -> list[str]:
    """Under its evidence: places, remedy, the command that tries it, words to search for."""
    parts = {
        "at": ", ".join(map(short_source, finding.sources)),
        "remedy": finding.remedy,
        "try": finding.verify,
        "search for": ", ".join(finding.words),
    }
    return [f"{label}: {plain_name(text, 2000)}" for label, text in parts.items() if text]


def with_remedy(finding: Finding) -> str:
    """Why, and of a known cause what to change, in sentences."""
    parts = [finding.because]
    parts += [f"Remedy: {finding.remedy}."] if finding.remedy else []
    parts += [f"To try it: {finding.verify}."] if finding.verify else []
    return " ".join(filter(None, parts))


def cause_saving(finding: Finding, per_step: str) -> str:
    """What a cause takes of the wall time; or, of one of the step, what its remedy saves."""
    taken, saved = finding.cause_share, finding.of_wall
    if saved is not None:
        return f"{percent(saved.expected)} ({percent(saved.low)} to {percent(saved.high)})"
    if finding.prediction is not None:
        return per_step
    return UNKNOWN if taken is None else percent(taken)
