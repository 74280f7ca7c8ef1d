"""Known causes in the verdict: the largest with its place, and whether it comes before all else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gobrrr.diagnosis.schema import Diagnosis, Finding
from gobrrr.timeline.names import short_source
from gobrrr.timeline.quantities import percent

# Of the wall time, what a cause outside the steps takes to come before all else, and one within
# them, which the regime's own share speaks of as well.
HEADLINE, HEADLINE_OF_STEPS = 0.5, 0.75
# A further cause that takes as much is named beside the largest; so many are at the most.
WORTH_NAMING_TOO, MOST_NAMED_TOO = 0.1, 2


def known_causes(diagnosis: Diagnosis) -> list[str]:
    """The largest known cause with its place, and the names of others that are large."""
    causes = [finding for finding in diagnosis.findings if finding.is_cause]
    if not causes:
        return []
    first, *others = causes
    text = f"Known cause: {_lowered(first.title or first.fix)}"
    if first.cause_share is not None:
        text += f", {percent(first.cause_share)} of the wall time"
    if first.sources:
        text += f", {short_source(first.sources[0])}"
    more = [o for o in others if (o.cause_share or 0.0) >= WORTH_NAMING_TOO][:MOST_NAMED_TOO]
    if more:
        named = [
            _lowered(o.title or o.fix) + (f" ({short_source(o.sources[0])})" if o.sources else "")
            for o in more
        ]
        # One sentence: whoever reads three of a verdict has read of all that are large.
        text += f"; also {'; '.join(named)}"
    return [f"{text}."]


def _lowered(title: str) -> str:
    """A title within a sentence: its first letter small, unless the word is a name."""
    first = title.split(" ", 1)[0]
    return title if any(c.isupper() for c in first[1:]) else title[:1].lower() + title[1:]


def is_headline(diagnosis: Diagnosis) -> bool:
    """Whether the largest known cause takes most of the wall time."""
    first = next((finding for finding in diagnosis.findings if finding.is_cause), None)
    if first is None:
        return False
    if first.of_wall is not None:
        return (first.cause_share or first.of_wall.expected) > HEADLINE
    return (first.cause_share or 0.0) > HEADLINE_OF_STEPS


def tells_most(diagnosis: Diagnosis, least: float) -> bool:
    """Whether the largest known cause takes ``least`` of the wall time or more."""
    shares = [finding.cause_share or 0.0 for finding in diagnosis.findings if finding.is_cause]
    return bool(shares) and shares[0] >= least


def largest_causes_first(findings: Sequence[Finding]) -> list[Finding]:
    """The causes among them in the order in which they are told, behind all else."""
    causes = [finding for finding in findings if finding.is_cause]
    causes.sort(key=lambda finding: -(finding.cause_share or 0.0))
    return [*(finding for finding in findings if not finding.is_cause), *causes]


def name_ranks_of_causes(found: Mapping[int, Diagnosis], shown: int) -> None:
    """Says of the causes of the rank that is shown where others lack them, and adds theirs.

    ``found``: the diagnosis of each rank.
    """
    ranks: dict[str, list[int]] = {}
    first: dict[str, Finding] = {}
    for rank, diagnosis in sorted(found.items(), key=lambda item: (item[0] != shown, item[0])):
        for finding in diagnosis.findings:
            if finding.is_cause:
                ranks.setdefault(finding.fix, []).append(rank)
                first.setdefault(finding.fix, finding)
    for name, finding in first.items():
        if len(ranks[name]) < len(found):
            among = ", ".join(map(str, sorted(ranks[name])))
            plural = "s" if len(ranks[name]) > 1 else ""
            finding.title = f"{finding.title or name}, on rank{plural} {among} alone"
    others = [finding for name, finding in first.items() if shown not in ranks[name]]
    found[shown].findings = largest_causes_first([*found[shown].findings, *others])
