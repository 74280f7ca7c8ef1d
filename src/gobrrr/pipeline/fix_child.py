"""Diagnose a program with fixes applied, in a process of its own.

``python -m gobrrr.pipeline.fix_child SPEC ANSWER``: both are JSON files. The answer holds the
diagnosis and the facts, or ``{"error": sentence, "kind": "input" | "user"}``.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from gobrrr.attribution.cpu_run import CpuAnalysis, silent
from gobrrr.capture.session import Plan
from gobrrr.capture.steps import StepWatcher
from gobrrr.capture.workload import load_function
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.fixes import FIXES
from gobrrr.fixes.facts import Facts
from gobrrr.fixes.fix import Fix
from gobrrr.fixes.gradients import counting_checkpoints
from gobrrr.fixes.programs import as_program
from gobrrr.pipeline.facts import (
    describe_iterator,
    describe_loader,
    describe_optimizer,
    dtypes_of,
    facts_of,
    module_kinds,
    with_unused_gradients,
)
from gobrrr.pipeline.live import diagnose_script, diagnose_work, load_ceilings
from gobrrr.timeline.errors import GobrrrError, InputError, UserCodeError
from gobrrr.verification.workloads import as_trial_workload

# What a program that reads standard input is told: it runs many times, and input comes once.
NO_INPUT = "; it waits for input, which it does not get here: give it arguments or a file instead"


class Spec(msgspec.Struct, kw_only=True):
    """What to diagnose: ``kind`` is ``function``, ``script`` or ``module``."""

    kind: str
    target: str
    argv: list[str] = []
    fixes: list[str] = []


class Answer(msgspec.Struct, kw_only=True):
    """What came of it."""

    diagnosis: Diagnosis | None = None
    facts: Facts | None = None
    error: str = ""
    by_user: bool = False


def main(spec_path: str, answer_path: str) -> None:
    """Reads the spec, writes the answer."""
    spec = msgspec.json.decode(Path(spec_path).read_bytes(), type=Spec)
    by_name = {fix.name: fix for fix in FIXES}
    fixes = [by_name[name] for name in spec.fixes]
    try:
        diagnose = _diagnose_function if spec.kind == "function" else _diagnose_script
        diagnosis, facts = diagnose(spec, fixes)
        answer = Answer(diagnosis=diagnosis, facts=replace(facts, workload=None))
    except UserCodeError as error:
        cause = f": {error.__cause__}" if error.__cause__ is not None else ""
        waits = NO_INPUT if isinstance(error.__cause__, EOFError) else ""
        answer = Answer(error=f"{error}{cause}{waits}", by_user=True)
    except GobrrrError as error:
        answer = Answer(error=str(error))
    Path(answer_path).write_bytes(msgspec.json.encode(answer))


def _diagnose_function(spec: Spec, fixes: Sequence[Fix]) -> tuple[Diagnosis, Facts]:
    work = as_trial_workload(load_function(spec.target))
    with ExitStack() as stack:
        for fix in fixes:
            if fix.apply is not None:
                work = stack.enter_context(fix.apply(work))
        program = as_program(work)
        ceilings = load_ceilings(refresh=False, progress=silent)
        title = Path(spec.target).name
        with counting_checkpoints() as checkpoints:
            done = diagnose_work(program, Plan(), ceilings, title, silent)
        facts = facts_of(done.diagnosis, done.analysis, workload=program, can_restart=True)
    return done.diagnosis, replace(facts, checkpoints=checkpoints[0] > 0)


def _diagnose_script(spec: Spec, fixes: Sequence[Fix]) -> tuple[Diagnosis, Facts]:
    seen: list[tuple[Diagnosis, Facts]] = []

    def keep(diagnosis: Diagnosis, analysis: CpuAnalysis | None, watcher: StepWatcher) -> None:
        facts = facts_of(diagnosis, analysis, is_script=True, can_restart=True)
        seen.append((diagnosis, _with_objects(facts, watcher)))

    with ExitStack() as stack:
        for fix in fixes:
            if fix.in_script is not None:
                stack.enter_context(fix.in_script())
        checkpoints = stack.enter_context(counting_checkpoints())
        outcome = diagnose_script(
            spec.target, spec.argv, is_module=spec.kind == "module", stop=True, on_analysis=keep
        )
    if seen:
        diagnosis, facts = seen[0]
        return diagnosis, replace(facts, checkpoints=checkpoints[0] > 0)
    if outcome.exit.raised:
        waits = NO_INPUT if isinstance(outcome.exit.error, EOFError) else ""
        raise UserCodeError(f"{spec.target} raised: its traceback is above{waits}")
    if outcome.exit.code:
        raise UserCodeError(f"{spec.target} ended with exit code {outcome.exit.code}")
    raise InputError(outcome.problem or "the script ended before it could be diagnosed")


def _with_objects(facts: Facts, watcher: StepWatcher) -> Facts:
    """Facts with what the running script's modules, optimizers and loaders say."""
    from torch.utils.data import DataLoader
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    module: Any = watcher.outermost() if watcher.outermost is not None else None
    parameters = list(module.parameters()) if module is not None else []
    optimizers = tuple(describe_optimizer(o) for o in watcher.optimizers if o.param_groups)
    # A loop holds the loader's iterator; the loader itself may be gone.
    alive = gc.get_objects()
    loaders = [describe_loader(o) for o in alive if type(o) is DataLoader]
    loaders += [describe_iterator(o) for o in alive if isinstance(o, _BaseDataLoaderIter)]
    facts = with_unused_gradients(facts, parameters, list(watcher.optimizers))
    return replace(
        facts,
        trains=facts.trains or bool(optimizers),
        optimizers=optimizers,
        loaders=tuple(dict.fromkeys(loaders)),
        modules=module_kinds(module),
        parameters=len(parameters) if module is not None else None,
        parameter_dtypes=dtypes_of(parameters),
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
