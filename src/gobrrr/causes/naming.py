"""The known causes of a diagnosed step, as findings: what is there, the most wall time first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gobrrr.causes import catalogue
from gobrrr.causes.cause import Cause, Found
from gobrrr.causes.code.unequal_work import UNEQUAL_WORK
from gobrrr.diagnosis.advice import LEAST_OF_WALL
from gobrrr.diagnosis.facts import Facts
from gobrrr.diagnosis.fix_schema import Finding, Portion, Prediction
from gobrrr.diagnosis.known_causes import largest_causes_first
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.diagnosis.verdict import verdict_of
from gobrrr.fixes.gathering.record_facts import facts_of_record
from gobrrr.fixes.patterns.dataflow import forget_flow
from gobrrr.timeline.quantities import count

if TYPE_CHECKING:
    from gobrrr.attribution.analysis import Analysis
    from gobrrr.live.measurements import Measurements


# What the fixes promise of more ops takes longer than a program should wait for it.
MOST_OPS = 5_000


def name_causes(
    diagnosis: Diagnosis,
    analysis: Analysis | None = None,
    measured: Measurements | None = None,
    of: object = None,
) -> None:
    """Adds the causes that are there to the diagnosis, and the largest to its verdict.

    Of a recording there is the diagnosis alone; of a run what was measured, and what the fixes
    promise is added too. ``of``: the watcher of
    a script, for its objects, or a workload; any other program has none that are known.
    """
    facts = (
        facts_of_record(diagnosis)
        if measured is None
        else _of_run(diagnosis, analysis, measured, of)
    )
    try:
        found = causes_of(facts, trusted=diagnosis.regime is not None, failures=diagnosis.notices)
        if measured is not None and diagnosis.regime is not None:
            _add_prospects(diagnosis, facts)
    finally:
        # The program goes on, and has no use for what was made of its step.
        forget_flow()
    if found:
        diagnosis.findings += found
        diagnosis.verdict = verdict_of(diagnosis)


def _add_prospects(diagnosis: Diagnosis, facts: Facts) -> None:
    """Adds what the fixes promise for a program that ran here."""
    # Not above: a trace is read in a fraction of a second, and fixes need the program.
    from gobrrr.fixes.catalogue import FIXES
    from gobrrr.fixes.fix import Fix
    from gobrrr.fixes.prospects import promising

    def failed(fix: Fix, error: Exception) -> None:
        diagnosis.notices.append(
            f"What {fix.name} would save could not be told, by a defect of its rule "
            f"({type(error).__name__}: {error})."
        )

    if len(facts.ops) > MOST_OPS:
        diagnosis.notices.append(
            f"A step has {count(len(facts.ops))} ops: what fixes would save is left to gobrrr fix."
        )
        return
    # A search runs a script in processes of its own.
    facts = replace(facts, can_restart=facts.is_script)
    findings, diagnosis.untried = promising(FIXES, facts, diagnosis.findings, failed)
    # A cause says at which lines what a fix that is made by hand would change.
    told = {finding.verify for finding in diagnosis.findings}
    diagnosis.findings += [
        finding
        for finding in findings
        if not finding.advice or f"gobrrr fix --only {finding.fix}" not in told
    ]


def _of_run(
    diagnosis: Diagnosis, analysis: Analysis | None, measured: Measurements, of: object
) -> Facts:
    # Not above: a trace is read in a fraction of a second, and has no use for it.
    from gobrrr.fixes.gathering.gather import facts_of, with_objects
    from gobrrr.live.steps import StepWatcher
    from gobrrr.timeline.workload import Workload

    work = of if isinstance(of, Workload) else None
    scripted = isinstance(of, StepWatcher)
    facts = facts_of(diagnosis, analysis, workload=work, is_script=scripted, times_dispatch=False)
    facts = with_objects(facts, of) if isinstance(of, StepWatcher) else facts
    program = measured.program(measured.windows, measured.bare.values())
    program = replace(
        program,
        padding=(*program.padding, *measured.padding),
        made=tuple(measured.made),
        subnormal=tuple(measured.subnormal),
        recorded=len(measured.recorded_steps),
        slept=_slept(measured),
    )
    return replace(
        facts,
        program=program,
        loaders=facts.loaders or program.loaders,
        optimizers=facts.optimizers or program.optimizers,
    )


def name_causes_of_job(diagnosis: Diagnosis) -> None:
    """Adds what shows only once the ranks of a job have been compared."""
    if diagnosis.job is None:
        return
    if any(finding.fix == UNEQUAL_WORK.name for finding in diagnosis.findings):
        return
    found = causes_of(
        facts_of_record(diagnosis), trusted=diagnosis.regime is not None,
        failures=diagnosis.notices, causes=(UNEQUAL_WORK,),
    )  # fmt: skip
    if found:
        diagnosis.findings = largest_causes_first([*diagnosis.findings, *found])
        sentence = diagnosis.job.sentence
        diagnosis.verdict = " ".join(filter(None, (verdict_of(diagnosis), sentence)))


def _slept(measured: Measurements) -> float | None:
    """Share of the timed steps that their thread slept; ``None``: unknown."""
    lengths_ns = measured.all_plain_ns
    slept_ns = measured.slept_ns
    if not slept_ns or not lengths_ns:
        return None
    each_ns = sum(slept_ns) / len(slept_ns)
    return min(1.0, each_ns * len(lengths_ns) / sum(lengths_ns))


def causes_of(
    facts: Facts,
    *,
    trusted: bool = True,
    failures: list[str] | None = None,
    causes: Sequence[Cause] | None = None,
) -> list[Finding]:
    """One finding for each cause that is there, the largest saving of the wall time first.

    ``trusted``: the times are the program's; otherwise its causes are told without savings.
    ``causes``: those that are looked for, by default all.
    ``failures`` gets a sentence for each cause whose own code fails; without it that raises.
    """
    told = []
    for cause in catalogue.CAUSES if causes is None else causes:
        try:
            found = cause.find(facts)
        except Exception as error:  # the diagnosis does without it, and says so
            if failures is None:
                raise
            failures.append(
                f"Whether {cause.name} is a cause here could not be told, by a defect of its rule "
                f"({type(error).__name__}: {error})."
            )
            continue
        if found is not None and _is_told(cause, found, facts):
            told.append((cause, found))
    # What happens once saves nothing of a long run, and has its place by what it took.
    told.sort(key=lambda pair: -(_saved(pair[1], facts) or pair[1].share or 0.0))
    return [_finding(cause, found, facts, trusted) for cause, found in told]


def _saved(found: Found, facts: Facts) -> float | None:
    """Of the wall time, what the remedy saves; ``None``: unknown."""
    if found.wall_expected is not None:
        return found.wall_expected
    if found.expected_s is None or facts.step_s <= 0:
        return None
    return min(found.expected_s / facts.step_s, 1.0) * facts.steps_share


def _is_told(cause: Cause, found: Found, facts: Facts) -> bool:
    saved = _saved(found, facts)
    return cause.warns or saved is None or saved >= LEAST_OF_WALL


def _finding(cause: Cause, found: Found, facts: Facts, trusted: bool) -> Finding:
    share = _saved(found, facts) if found.share is None else found.share
    return Finding(
        fix=cause.name,
        title=f"{cause.title[:1].upper()}{cause.title[1:]}",
        prediction=_prediction(found, facts) if trusted else None,
        because=_because(found, trusted),
        sources=list(found.sources),
        advice=True,
        words=list(cause.words),
        remedy=cause.remedy,
        verify=f"gobrrr fix --only {cause.verified_by}" if cause.verified_by else "",
        cause_share=share if trusted else None,
        of_wall=_of_wall(found) if trusted else None,
    )


def _because(found: Found, trusted: bool) -> str:
    if trusted:
        return f"{found.evidence}{': ' if found.timed else ''}{found.timed}."
    return f"{found.evidence}. What it saves cannot be told from these times."


def _prediction(found: Found, facts: Facts) -> Prediction | None:
    if found.wall_expected is not None or found.expected_s is None or facts.step_s <= 0:
        return None
    # Nothing saves the whole step.
    most_s = 0.999 * facts.step_s
    expected_s = min(found.expected_s, most_s)
    low_s = expected_s if found.low_s is None else min(found.low_s, expected_s)
    high_s = expected_s if found.high_s is None else max(found.high_s, expected_s)
    return Prediction(
        low_s=low_s,
        expected_s=expected_s,
        high_s=min(high_s, facts.step_s),
        speedup=facts.step_s / (facts.step_s - expected_s),
    )


def _of_wall(found: Found) -> Portion | None:
    expected = found.wall_expected
    if expected is None:
        return None
    low = expected if found.wall_low is None else found.wall_low
    high = expected if found.wall_high is None else found.wall_high
    return Portion(low=low, expected=expected, high=high)
