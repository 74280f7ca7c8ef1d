"""What to do, ranked: every finding that needs no trial, by what it saves of the wall time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from gobrrr.diagnosis.schema import Diagnosis, Finding, Portion

# What saves less of the wall time is not advised.
LEAST_OF_WALL = 0.03
# The name of findings of ops that one kernel could do.
FUSION = "fusion"


@dataclass(frozen=True, slots=True)
class Advice:
    """A finding with its saving.

    Attributes:
        finding: the known cause, the fix or the fusion.
        saved: of the wall time, what it saves; ``None``: unknown.
        taken: of the wall time, what it takes where the saving is unknown; ``None``: unknown too.
    """

    finding: Finding
    saved: Portion | None
    taken: float | None

    @property
    def share(self) -> float | None:
        """Its place in the list."""
        return self.taken if self.saved is None else self.saved.expected


def advice_of(diagnosis: Diagnosis) -> list[Advice]:
    """The largest first, what a search has tried left out.

    A cause at its line stands before a change of everything whose saving may be no larger.

    Left out is what saves too little, what cannot be told (``Prediction.tells``), and of those
    that one command tries all but the largest.
    """
    untried = [finding for finding in diagnosis.findings if finding.verification is None]
    alone = [_of(finding, diagnosis) for finding in untried if not _by_one_change(finding)]
    changes = dict.fromkeys(finding.remedy for finding in untried if _by_one_change(finding))
    for change in changes:
        same = [f for f in untried if _by_one_change(f) and f.remedy == change]
        alone.append(_together([_of(finding, diagnosis) for finding in same]))
    found = [advised for advised in alone if _is_listed(advised)]
    # A cause says what happens at which line, so it stands for the fix that removes it.
    found.sort(key=lambda a: (not a.finding.is_cause, -(a.share or 0.0)))
    listed: list[Advice] = []
    commands: set[str] = set()
    for advised in found:
        command = advised.finding.verify
        if not command or command not in commands:
            listed.append(advised)
            commands.add(command)
    listed.sort(key=lambda a: -(a.share or 0.0))
    for place in [i for i, advised in enumerate(listed) if advised.finding.is_cause]:
        while place and _may_save_no_more(listed[place - 1], listed[place]):
            listed[place - 1], listed[place] = listed[place], listed[place - 1]
            place -= 1
    return listed


def _may_save_no_more(before: Advice, cause: Advice) -> bool:
    """Whether a change of everything may save no more than removing a cause at its line."""
    if before.finding.is_cause or before.saved is None:
        return False
    return before.saved.low <= (cause.share or 0.0)


def _of(finding: Finding, diagnosis: Diagnosis) -> Advice:
    saved = saved_of_wall(finding, diagnosis)
    return Advice(finding, saved, finding.cause_share if saved is None else None)


def _is_listed(advised: Advice) -> bool:
    if advised.share is None:
        return advised.finding.is_cause
    return advised.share >= LEAST_OF_WALL and (
        advised.saved is not None or advised.finding.is_cause
    )


def _by_one_change(finding: Finding) -> bool:
    """Whether it is a group of ops to fuse, which one change does with others of its kind."""
    return finding.fix == FUSION and not finding.verify


def _together(groups: Sequence[Advice]) -> Advice:
    """Groups of ops that one change fuses, as one piece of advice: they have no op in common."""
    known = [(advised.finding, advised.saved) for advised in groups if advised.saved is not None]
    if len(known) < 2:
        return groups[0]
    first, _ = max(known, key=lambda pair: pair[1].expected)
    what = (first.title or "").removeprefix("Fuse: ")
    portions = [saved for _, saved in known]
    finding = replace(
        first,
        title=f"Fuse ops that pass data on through memory, {len(known)} groups",
        because=f"the largest group is a {what}: {first.because}",
    )
    low, expected, high = (
        min(1.0, sum(getattr(saved, end) for saved in portions))
        for end in ("low", "expected", "high")
    )
    return Advice(finding, Portion(low=low, expected=expected, high=high), None)


def saved_of_wall(finding: Finding, diagnosis: Diagnosis) -> Portion | None:
    """What a finding saves of the wall time; ``None`` where that is unknown or cannot be told."""
    if finding.of_wall is not None:
        return finding.of_wall
    predicted, step_s = finding.prediction, diagnosis.accounted_s
    if predicted is None or step_s <= 0 or not predicted.tells(step_s):
        return None
    steps = 1.0 if diagnosis.wall is None else diagnosis.wall.steps_share
    low, expected, high = (
        min(s / step_s, 1.0) * steps
        for s in (predicted.low_s, predicted.expected_s, predicted.high_s)
    )
    return Portion(low=low, expected=expected, high=high)
