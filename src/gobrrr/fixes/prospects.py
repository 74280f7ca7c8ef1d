"""What the fixes promise for one program, before any is tried."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from gobrrr.diagnosis.advice import FUSION
from gobrrr.diagnosis.facts import Facts
from gobrrr.diagnosis.schema import Finding, Prediction, Untried
from gobrrr.fixes.fix import Fix, Prospect, RuledOut

# No prediction leaves less of a step than this.
_LEAST_LEFT = 1e-3


def consider_all(
    fixes: Sequence[Fix],
    facts: Facts,
    asked: Collection[str] = (),
    ruled_out: list[tuple[Fix, str]] | None = None,
    failed: Callable[[Fix, Exception], None] | None = None,
) -> list[tuple[Fix, Prospect]]:
    """Those that are not ruled out, the largest saving first, other steps than today's last.

    ``failed`` is told of a fix whose own rule raises; without it that raises.
    """
    prospects = []
    for fix in fixes:
        try:
            verdict = fix.considered(facts, asked)
        except Exception as error:  # the others are told without it
            if failed is None:
                raise
            failed(fix, error)
            continue
        if not isinstance(verdict, RuledOut):
            prospects.append((fix, verdict))
        elif ruled_out is not None:
            ruled_out.append((fix, verdict.reason))
    prospects.sort(key=lambda pair: (pair[0].changes_step, -pair[1].expected_s))
    return prospects


def finding_of(fix: Fix, prospect: Prospect, step_s: float) -> Finding:
    """A fix as a finding of a step of this many seconds, with what is predicted of it."""
    left_s = max(step_s - prospect.expected_s, _LEAST_LEFT * step_s)
    return Finding(
        fix=fix.name,
        title=fix.title,
        prediction=Prediction(
            low_s=prospect.low_s, expected_s=prospect.expected_s, high_s=prospect.high_s,
            speedup=step_s / left_s,
        ),
        because=prospect.because,
        sources=list(prospect.sources),
        leaves=list(fix.leaves),
        advice=not fix.can_be_applied or bool(prospect.by_hand),
        precision=fix.precision,
    )  # fmt: skip


def promising(
    fixes: Sequence[Fix],
    facts: Facts,
    known: Sequence[Finding],
    failed: Callable[[Fix, Exception], None],
) -> tuple[list[Finding], Untried]:
    """Findings of what is worth trying or doing, and the names of all that a search would try.

    Of fixes of which a program can have one alone the most promising is a finding. ``known``:
    other findings of the step; what fuses ops is what tries its fusions, which is noted in them.
    """
    prospects = consider_all(fixes, facts, failed=failed)
    tried = [
        fix
        for fix, prospect in prospects
        if not prospect.by_hand and (fix.environment or (
            fix.in_script if facts.is_script else fix.apply) is not None)
    ]  # fmt: skip
    names = {fix.name for fix, _ in prospects}
    chosen: list[Fix] = []
    findings = []
    for fix, prospect in prospects:
        # Its plain form is asked for first, and tells whether a variant is worth a look.
        if prospect.expected_s <= 0 or fix.variant_of in names or fix.family:
            continue
        if any(fix.excludes(other) for other in chosen):
            continue
        chosen.append(fix)
        finding = finding_of(fix, prospect, facts.step_s)
        if fix in tried:
            finding.verify = command_of(fix.name)
        else:
            finding.remedy = fix.snippet
        findings.append(finding)
    fusing = next((fix for fix in chosen if fix.effect.fuses and fix in tried), None)
    for finding in known:
        if finding.fix == FUSION and fusing is not None:
            finding.verify = command_of(fusing.name)
    return findings, Untried(fixes=[fix.name for fix in tried])


def command_of(name: str) -> str:
    """The command that tries one fix; the program follows."""
    return f"gobrrr fix --only {name}"
