"""Diagnose a callable or a workload that runs here."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from gobrrr.causes.naming import name_causes
from gobrrr.devices import ceilings_beforehand
from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.live.function import measure_step
from gobrrr.live.measurements import FEWEST_STEPS, Plan
from gobrrr.live.profiles.generated_kernels import kernels_built_to_be_seen
from gobrrr.measure.progress import Progress, shown
from gobrrr.observe.compiler_counters import compiler_counters, counted_since
from gobrrr.observe.snapshot import state_put_back
from gobrrr.pipeline.measured import Diagnosed, diagnose_measured
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.workload import Workload, as_workload, modules_of, reached_by, title_of
from gobrrr.verification.doubled_batch import double_batch


def diagnose(
    target: Any,
    *,
    steps: int | None = None,
    warmup: int | None = None,
    batch_test: bool | None = None,
    compare_compiled: bool = False,
    restore: bool = True,
    refresh_ceilings: bool = False,
    ceilings: Ceilings | None = None,
    name: str | None = None,
    progress: Progress | bool | None = None,
) -> Diagnosis:
    """Diagnose a callable without arguments, ``(module, inputs)`` or a ``Workload``.

    The target's state (weights, optimizers, random generators, all that it can reach) is put back
    afterwards, unless ``restore`` is false. ``steps`` are timed plain (default: chosen from their
    length), after ``warmup`` steps (default: until times settle). ``compare_compiled`` compiles the
    step's forward too (seconds to minutes) and says which kernels ``torch.compile`` leaves.
    ``batch_test`` runs the step on twice the data; by default where that takes a few seconds.
    ``progress``: by default sentences on stderr after two seconds; ``False`` for none, or a
    function of ``(phase, done, wanted)``.

    Raises InputError for a target that cannot be run, UserCodeError if a step raises, DefectError
    if gobrrr fails on a step that runs without it.
    """
    work = as_workload(target)
    if steps is not None and steps < FEWEST_STEPS:
        raise InputError(f"steps must be at least {FEWEST_STEPS}, not {steps}")
    notices: list[str] = []
    compiled_before = compiler_counters()
    with shown(progress) as tell:
        ceilings = ceilings or ceilings_beforehand(refresh=refresh_ceilings, progress=tell)
        kept = state_put_back(reached_by(work), notices) if restore else nullcontext()
        with kernels_built_to_be_seen(), kept:
            done = diagnose_work(
                work, Plan(warmup, steps), ceilings, name, tell, refresh=refresh_ceilings
            )
            done.diagnosis.counters |= counted_since(compiled_before)
            analysis, measured = done.analysis, done.measured
            whole = batch_test is not False and not measured.unrecorded
            if whole and isinstance(work, Workload):
                outcome = double_batch(
                    work, analysis, measured, ceilings, tell, always=batch_test is True
                )
                if isinstance(outcome, str):
                    notices.append(outcome)
                else:
                    done.diagnosis.batch_doubling = outcome
            if compare_compiled:
                from gobrrr.prediction.inductor_comparison import comparison_notices

                notices += comparison_notices(work)
    done.diagnosis.notices += notices
    return done.diagnosis


def diagnose_work(
    work: Workload | Callable[[], Any],
    plan: Plan,
    ceilings: Ceilings | None,
    name: str | None,
    progress: Progress,
    *,
    refresh: bool = False,
) -> Diagnosed:
    """Diagnose a step's callable or workload, whose state moves on; given ceilings are new."""
    step: Callable[[], Any] = work.step if isinstance(work, Workload) else work
    measured = measure_step(step, plan, modules=modules_of(work), progress=progress)
    source = {"kind": "function", "name": name or title_of(work)}
    anew = refresh and ceilings is None
    done = diagnose_measured(measured, source, ceilings, progress, refresh=anew)
    name_causes(done.diagnosis, done.analysis, done.measured, work)
    return done
