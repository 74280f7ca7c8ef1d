"""Diagnose a script or a module that runs here, unmodified, on the way."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from gobrrr.devices.beforehand import measure_beforehand
from gobrrr.jobs.rank_in_environment import rank_of_job
from gobrrr.live.measurements import FEWEST_STEPS, Measurements, Plan
from gobrrr.live.program_modes import outside_the_program
from gobrrr.live.script import Script, ScriptExit, script_of
from gobrrr.live.script_run import measure_script
from gobrrr.live.steps import StepWatcher
from gobrrr.measure.progress import Progress, silent
from gobrrr.observe.compiler_counters import compiler_counters
from gobrrr.timeline.errors import InputError

# What diagnoses is imported once the steps were measured: until then the program's heap is its own.
if TYPE_CHECKING:
    from gobrrr.attribution.analysis import Analysis
    from gobrrr.diagnosis.schema import Diagnosis

OnAnalysis: TypeAlias = "Callable[[Diagnosis, Analysis, StepWatcher], None]"


@dataclass
class ScriptOutcome:
    """How the script ended, and its diagnosis or the reason why there is none.

    ``too_few_steps``: fewer than the plan needs. ``ran_on``: it was diagnosed long before its end.
    """

    exit: ScriptExit
    diagnosis: Diagnosis | None
    problem: str | None
    too_few_steps: bool = False
    ran_on: bool = False


def diagnose_script(
    target: str | Script,
    argv: list[str],
    *,
    is_module: bool = False,
    steps: int | None = None,
    warmup: int | None = None,
    recorded: int = 1,
    stop: bool = False,
    threads: int | None = None,
    if_raised: bool = True,
    step: str = "",
    refresh_ceilings: bool = False,
    perfetto: Path | None = None,
    progress: Progress = silent,
    on_diagnosis: Callable[[Diagnosis, bool], None] = lambda diagnosis, shown: None,
    on_analysis: OnAnalysis = lambda diagnosis, analysis, watcher: None,
) -> ScriptOutcome:
    """Run a script (or, with ``is_module``, a module) unmodified and diagnose its steps on the way.

    ``on_diagnosis`` is called when the measured steps are over (with ``if_raised`` also where it
    raises before), with whether this process shows it; the script then runs on (``stop`` ends it).
    ``step`` and ``threads`` are as ``measure_script`` takes them.
    ``on_analysis`` gets what lies behind it, while the script's objects live. All ranks of a job
    measure the same steps; the first's diagnosis and ``perfetto`` are of all. Raises InputError.
    """
    if steps is not None and steps < FEWEST_STEPS:
        raise InputError(f"--steps must be at least {FEWEST_STEPS}, not {steps}")
    script, name = script_of(target, is_module=is_module)
    rank = rank_of_job(os.environ, name, perfetto)
    # Before the script runs: measured while it does, they would be another program's.
    with rank.machine_to_itself():
        known = measure_beforehand(refresh=refresh_ceilings, threads=threads, progress=progress)
    anew = refresh_ceilings and not known
    source = {"kind": "module" if is_module else "script", "name": name}
    diagnoses: list[Diagnosis] = []

    def conclude(measured: Measurements, watcher: StepWatcher) -> None:
        from gobrrr.causes.naming import name_causes, name_causes_of_job
        from gobrrr.jobs.records import diagnosis_of_job
        from gobrrr.pipeline.measured import diagnose_measured

        # The script may have set the threads since, or may be inside modes of its own here.
        with outside_the_program():
            done = diagnose_measured(measured, source, None, progress, refresh=anew)
            name_causes(done.diagnosis, done.analysis, done.measured, watcher)
        done.diagnosis.counters |= compiler_counters()  # gobrrr itself compiles nothing
        diagnoses.append(diagnosis_of_job(rank, done.diagnosis, done.analysis, measured))
        name_causes_of_job(diagnoses[0])
        on_diagnosis(diagnoses[0], rank.reports)
        on_analysis(diagnoses[0], done.analysis, watcher)

    plan = Plan(warmup, steps, of_ranks=rank.job is not None, recorded=recorded)
    with rank.in_script():
        ended = measure_script(
            script, argv, plan, conclude, progress, rank, stop=stop, if_raised=if_raised,
            step=step, threads=threads,
        )  # fmt: skip
        from gobrrr.jobs.records import diagnosis_of_others

        found = diagnoses[0] if diagnoses else diagnosis_of_others(rank, ended, on_diagnosis)
    ran_on = ended.ran_on and bool(diagnoses)
    return ScriptOutcome(ended.exit, found, ended.problem, ended.too_few_steps, ran_on)
