"""Diagnose a program with fixes applied: what a child process is asked to do before any trial."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from gobrrr.attribution.cpu_run import CpuAnalysis, silent
from gobrrr.capture.steps import StepWatcher
from gobrrr.capture.workload import load_function
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.fixes.facts import Facts
from gobrrr.fixes.fix import Fix
from gobrrr.fixes.gather import (
    describe_iterator,
    describe_loader,
    describe_optimizer,
    dtypes_of,
    facts_of,
    module_kinds,
    with_unused_gradients,
)
from gobrrr.fixes.gradients import counting_checkpoints
from gobrrr.pipeline.fix_benches import diagnose_with
from gobrrr.pipeline.live import diagnose_script, load_ceilings
from gobrrr.timeline.errors import InputError, UserCodeError
from gobrrr.verification.child import NO_INPUT, Parent, find_fixes
from gobrrr.verification.messages import Diagnosed, Spec, Target
from gobrrr.verification.sides import enter_in_script
from gobrrr.verification.workloads import as_trial_workload


def diagnose(spec: Spec, parent: Parent) -> None:
    """Tells the diagnosis and the facts of the program with the fixes."""
    fixes = find_fixes(spec.fixes, spec.target.registry)
    if spec.target.is_function:
        work = as_trial_workload(load_function(spec.target.name))
        ceilings = load_ceilings(refresh=False, progress=silent)
        title = Path(spec.target.name).name
        diagnosis, facts = diagnose_with(work, fixes, ceilings, title, silent, can_restart=True)
    else:
        diagnosis, facts = _diagnose_script(spec.target, fixes)
    parent.tell(Diagnosed(diagnosis, pickle.dumps(replace(facts, workload=None))))


def _diagnose_script(target: Target, fixes: Sequence[Fix]) -> tuple[Diagnosis, Facts]:
    seen: list[tuple[Diagnosis, Facts]] = []

    def keep(diagnosis: Diagnosis, analysis: CpuAnalysis | None, watcher: StepWatcher) -> None:
        facts = facts_of(diagnosis, analysis, is_script=True, can_restart=True)
        seen.append((diagnosis, _with_objects(facts, watcher)))

    with ExitStack() as stack:
        enter_in_script(fixes, stack)
        checkpoints = stack.enter_context(counting_checkpoints())
        outcome = diagnose_script(
            target.name,
            list(target.argv),
            is_module=target.kind == "module",
            stop=True,
            on_analysis=keep,
        )
    if seen:
        diagnosis, facts = seen[0]
        return diagnosis, replace(facts, checkpoints=checkpoints[0] > 0)
    if outcome.exit.raised:
        waits = NO_INPUT if isinstance(outcome.exit.error, EOFError) else ""
        raise UserCodeError(f"{target.name} raised: its traceback is above{waits}")
    if outcome.exit.code:
        raise UserCodeError(f"{target.name} ended with exit code {outcome.exit.code}")
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
