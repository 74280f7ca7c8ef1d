"""Diagnose a program with fixes applied: a workload here, or a program in a child process."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from gobrrr.attribution.analysis import Analysis
from gobrrr.devices import ceilings_beforehand
from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.facts import Facts
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.fixes.fix import Fix
from gobrrr.fixes.gathering.gather import facts_of, with_objects
from gobrrr.fixes.gathering.kept_tensors import with_kept_tensors
from gobrrr.fixes.gathering.watched_calls import watching_calls
from gobrrr.fixes.programs import as_program
from gobrrr.live.measurements import Plan
from gobrrr.live.steps import StepWatcher
from gobrrr.measure.progress import Progress, silent
from gobrrr.pipeline.live import diagnose_work
from gobrrr.pipeline.script import diagnose_script
from gobrrr.timeline.errors import InputError, UserCodeError
from gobrrr.timeline.workload import Workload, load_function
from gobrrr.verification.child import NO_INPUT, Parent, find_fixes
from gobrrr.verification.messages import Diagnosed, Spec, Target
from gobrrr.verification.sides import enter_in_script
from gobrrr.verification.workloads import apply_all, as_trial_workload

# What a child process is told to do.
IN_CHILD = "gobrrr.pipeline.diagnosed_with:in_child"


def diagnose_with(
    work: Workload,
    fixes: Sequence[Fix],
    ceilings: Ceilings | None,
    title: str,
    progress: Progress,
    *,
    can_restart: bool = False,
) -> tuple[Diagnosis, Facts]:
    """A workload, which is used up by it, with fixes applied."""
    with ExitStack() as stack:
        applied = [fix for fix in fixes if fix.apply is not None]
        program = as_program(apply_all(work, applied, stack))
        with watching_calls() as with_calls:
            done = diagnose_work(program, Plan(recorded=2), ceilings, title, progress)
        facts = facts_of(done.diagnosis, done.analysis, workload=program, can_restart=can_restart)
        if facts.in_order and not facts.compiled:
            facts = with_kept_tensors(facts, program.step)
    return done.diagnosis, with_calls(facts)


def in_child(spec: Spec, parent: Parent) -> None:
    """Tells the diagnosis and the facts of the program with the fixes."""
    fixes = find_fixes(spec.fixes, spec.target.registry)
    if spec.target.is_function:
        work = as_trial_workload(load_function(spec.target.name))
        ceilings = ceilings_beforehand(refresh=False, progress=silent)
        title = Path(spec.target.name).name
        diagnosis, facts = diagnose_with(work, fixes, ceilings, title, silent, can_restart=True)
    else:
        diagnosis, facts = _diagnose_script(spec.target, fixes)
    parent.tell(Diagnosed(diagnosis, pickle.dumps(replace(facts, workload=None))))


def _diagnose_script(target: Target, fixes: Sequence[Fix]) -> tuple[Diagnosis, Facts]:
    seen: list[tuple[Diagnosis, Facts]] = []

    def keep(diagnosis: Diagnosis, analysis: Analysis, watcher: StepWatcher) -> None:
        facts = facts_of(diagnosis, analysis, is_script=True, can_restart=True)
        seen.append((diagnosis, with_objects(facts, watcher)))

    with ExitStack() as stack:
        enter_in_script(fixes, stack)
        with_calls = stack.enter_context(watching_calls())
        outcome = diagnose_script(
            target.name,
            list(target.argv),
            is_module=target.kind == "module",
            stop=True,
            if_raised=False,
            on_analysis=keep,
            recorded=2,
        )
    if seen:
        return seen[0][0], with_calls(seen[0][1])
    if outcome.exit.raised:
        waits = NO_INPUT if isinstance(outcome.exit.error, EOFError) else ""
        raise UserCodeError(f"{target.name} raised: its traceback is above{waits}")
    if outcome.exit.code:
        raise UserCodeError(f"{target.name} ended with exit code {outcome.exit.code}")
    raise InputError(outcome.problem or "the script ended before it could be diagnosed")
