"""What a search for fixes has found, and how a diagnosis keeps it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from gobrrr.diagnosis.facts import Facts
from gobrrr.diagnosis.fix_schema import FASTER, INCOMPARABLE, NOT_APPLIED, SAME, SLOWER
from gobrrr.diagnosis.out_of_proportion import KINDS
from gobrrr.diagnosis.schema import (
    Diagnosis,
    Finding,
    FixSummary,
    Verification,
)
from gobrrr.diagnosis.verdict import verdict_of
from gobrrr.fixes.fix import Fix, Prospect
from gobrrr.fixes.prospects import finding_of
from gobrrr.search.memory_curve import memory_curve
from gobrrr.verification.timing import Null
from gobrrr.verification.trial import ratio_of

# No prediction leaves less of a step than this.
_LEAST_LEFT = 1e-3
# Share of what a kind of ops takes too long that a fix saves where both are of one flaw: topk's
# saving is that of other values, and lower than all that sorting takes.
_MOST_OF_IT = 0.5


@dataclass(frozen=True)
class Tried:
    """A fix with what was predicted of it and what came of it.

    ``reason`` says why there is no trial.
    """

    fix: Fix
    prospect: Prospect
    trial: Verification | None = None
    reason: str = ""

    @property
    def is_advice(self) -> bool:
        """Whether only the program's author can make the change."""
        return not self.fix.can_be_applied or bool(self.prospect.by_hand)


@dataclass
class Found:
    """What a search has found so far.

    Attributes:
        diagnosis: of the program as it is.
        facts: the same for the fixes.
        tried: every fix that had a prospect, the largest expected saving first.
        ruled_out: the others, with the reason.
        combinations: sets of more than one fix, in the order tried.
        best: the fastest verified set's trial; ``None`` if nothing is faster.
        after: the diagnosis with the best set applied, if it was made.
        diagnosis_s, trials_s: seconds that the first diagnosis and everything after it took.
        budget_s: what was given for the latter.
        enough_s: about what would have been enough; ``None`` where it was.
    """

    diagnosis: Diagnosis
    facts: Facts
    tried: list[Tried] = field(default_factory=list)
    ruled_out: list[tuple[Fix, str]] = field(default_factory=list)
    null: Null | None = None
    combinations: list[Verification] = field(default_factory=list)
    best: Verification | None = None
    after: Diagnosis | None = None
    notices: list[str] = field(default_factory=list)
    diagnosis_s: float | None = None
    trials_s: float | None = None
    budget_s: float | None = None
    enough_s: float | None = None


def write_findings(found: Found) -> None:
    """Findings and summary into the diagnosis, the largest saving first.

    What was measured decides, where it tells; otherwise what was predicted. A variant that was not
    tried follows what it is a variant of.
    """
    step_s = found.facts.step_s
    savings = _savings(found.tried, step_s)
    found.tried.sort(key=lambda t: (t.fix.changes_step, -savings[t.fix.name]))
    foreseen = found.diagnosis.regime is not None
    told = [t for t in found.tried if foreseen or _is_told_without_a_time(t)]
    # What the diagnosis found by itself stands last: nothing of it was tried.
    known = {tried.fix.name for tried in found.tried} | {fix.name for fix, _ in found.ruled_out}
    own = [finding for finding in found.diagnosis.findings if finding.fix not in known]
    for finding in own:
        finding.advice = True
    found.diagnosis.findings = [
        _finding(tried, step_s, savings[tried.fix.name], foreseen) for tried in told
    ]
    found.diagnosis.findings += [
        Finding(
            fix="+".join(trial.fixes), title=" + ".join(trial.fixes), prediction=None,
            because="", verification=trial,
        )
        for trial in found.combinations
    ]  # fmt: skip
    found.diagnosis.findings += own
    by_name = {tried.fix.name: tried.fix for tried in found.tried}
    names = list(found.best.fixes) if found.best is not None else []
    curve = memory_curve([(tried.fix, tried.trial) for tried in found.tried])
    notices = list(found.notices)
    settings = [t for t in found.tried if t.trial is not None and t.fix.setting is not None]
    if curve is None and settings:
        notices.append("No curve of memory against time: no setting's memory could be measured.")
    found.diagnosis.untried = None
    found.diagnosis.fixes = FixSummary(
        best=names,
        verification=found.best,
        snippet=snippet_of([by_name[name] for name in names if name in by_name]),
        ruled_out={fix.name: reason for fix, reason in found.ruled_out},
        not_tried={
            t.fix.name: t.reason
            for t in found.tried
            if t.trial is None and not (t.is_advice and t in told)
        },
        null=None if found.null is None else ratio_of(found.null.ratio),
        notices=notices,
        memory_curve=curve,
        diagnosis_s=found.diagnosis_s,
        trials_s=found.trials_s,
        budget_s=found.budget_s,
        enough_s=found.enough_s,
    )
    found.diagnosis.verdict = verdict_of(found.diagnosis)
    # The verdict says what takes the time; of the list one row for each flaw is enough.
    stands_for = [t for t in told if t.is_advice]
    found.diagnosis.findings = [
        finding
        for finding in found.diagnosis.findings
        if not any(_is_the_same(finding, fix.prospect) for fix in stands_for)
    ]


def _is_told_without_a_time(tried: Tried) -> bool:
    """Whether a fix is told where the diagnosis draws no verdict: what a trial measured, and flaws.

    A flaw is at its line whatever the machine does; only how long it takes is unknown then.
    """
    flaw = bool(tried.prospect.sources) and tried.prospect.expected_s > 0
    return flaw or tried.trial is not None


def _is_the_same(finding: Finding, fix: Prospect) -> bool:
    """Whether a finding says of a kind of ops that it takes long, and a fix what to do about it.

    That is, of the same lines, and what the fix saves is most of what the finding does.
    """
    if finding.fix not in KINDS or finding.prediction is None or not finding.sources:
        return False
    most = fix.expected_s >= _MOST_OF_IT * finding.prediction.expected_s
    return most and set(finding.sources) <= set(fix.sources)


def snippet_of(fixes: Sequence[Fix]) -> str:
    """Fixes as code that a user would write."""
    return "\n".join(f"# {fix.title}\n{fix.snippet}" for fix in fixes)


def _savings(tried: Sequence[Tried], step_s: float) -> dict[str, float]:
    """Seconds of the step by the fix's name."""
    found: dict[str, float] = {}
    bases = {one.fix.name: one for one in tried}
    for one in tried:
        measured = _measured_s(one, step_s)
        base = bases.get(one.fix.variant_of)
        if measured is None and one.trial is None and base is not None:
            of_base = _measured_s(base, step_s)
            if of_base is not None and step_s > 0:
                # As much more or less than its base as was predicted, or as much of what its base
                # leaves of the step: the more cautious, so that it never saves more than there is.
                ours_s, theirs_s = one.prospect.expected_s, base.prospect.expected_s
                left_s = max(step_s - theirs_s, _LEAST_LEFT * step_s)
                share = max(step_s - ours_s, _LEAST_LEFT * step_s) / left_s
                measured = min(of_base + ours_s - theirs_s, step_s - (step_s - of_base) * share)
                if of_base <= 0:
                    measured = min(of_base, measured)
        found[one.fix.name] = one.prospect.expected_s if measured is None else measured
    return found


def _measured_s(tried: Tried, step_s: float) -> float | None:
    """What the trial says; ``None`` where it tells nothing."""
    trial = tried.trial
    if trial is None or trial.verdict == NOT_APPLIED:
        return None
    if trial.verdict == INCOMPARABLE:
        # Too noisy for a verdict: what it may have saved at most limits the prediction, but what
        # it saved at least, by a timer that cannot tell, proves nothing that was not expected.
        agreed = (trial.numerics or {}).get("verdict") == "passed"
        if not agreed or trial.speedup is None:
            return None
        return min(tried.prospect.expected_s, step_s * (1.0 - 1.0 / trial.speedup.high))
    if trial.verdict in (FASTER, SLOWER) and trial.speedup is not None:
        return step_s * (1.0 - 1.0 / trial.speedup.median)
    return 0.0 if trial.verdict == SAME else -math.inf if trial.speedup is None else 0.0


def _finding(tried: Tried, step_s: float, saving_s: float, foreseen: bool) -> Finding:
    finding = finding_of(tried.fix, tried.prospect, step_s)
    known = foreseen or tried.trial is not None
    if not foreseen:
        # The arithmetic is made of times.
        lines = ", ".join(finding.sources)
        finding.because = f"at {lines}; how much it takes is unknown" if not known else ""
        finding.prediction = None
    if tried.trial is None and tried.reason:
        finding.because = f"{finding.because} ({tried.reason})"
    finding.saving_s = None if not known else saving_s if math.isfinite(saving_s) else 0.0
    finding.verification = tried.trial
    return finding
