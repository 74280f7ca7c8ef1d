"""Programs as the search sees them: a workload of this process, or a program in its own."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from gobrrr.attribution.cpu_run import Progress, silent
from gobrrr.capture.function_names import require_function
from gobrrr.capture.session import Plan
from gobrrr.capture.workload import Workload
from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.schema import Diagnosis, Verification
from gobrrr.fixes.facts import Facts
from gobrrr.fixes.fix import Fix
from gobrrr.fixes.gather import facts_of
from gobrrr.fixes.gradients import counting_checkpoints
from gobrrr.fixes.programs import as_program
from gobrrr.pipeline.live import diagnose_work, load_ceilings
from gobrrr.timeline.errors import GobrrrError, InputError, UserCodeError
from gobrrr.timeline.quantities import whole_seconds
from gobrrr.verification.copies import private_copy
from gobrrr.verification.memory import memory_limited
from gobrrr.verification.messages import Diagnosed, Failed, Spec, Target
from gobrrr.verification.numerics import TOLERANCE
from gobrrr.verification.processes import Child, ChildFailed, joined_environment
from gobrrr.verification.programs import ProgramTrials
from gobrrr.verification.sides import load
from gobrrr.verification.timing import Null
from gobrrr.verification.workloads import (
    Baseline,
    apply_all,
    as_trial_workload,
    left_as_found,
    measure_null,
    prepare,
    verify_workload,
)

DIAGNOSE = "gobrrr.pipeline.fix_child:diagnose"
# A program that takes this long to start and be diagnosed cannot be tried in minutes.
MOST_DIAGNOSIS_S = 900.0
# Seconds of measuring without which a trial says nothing; for a script, processes start too.
LEAST_TRIAL_S, LEAST_SCRIPT_TRIAL_S = 2.0, 10.0


class WorkloadBench:
    """A workload of this process: fixes are applied to copies of it."""

    least_trial_s = LEAST_TRIAL_S

    def __init__(
        self,
        target: Any,
        tolerance: float = TOLERANCE,
        ceilings: Ceilings | None = None,
        name: str | None = None,
        memory_limit: int | None = None,
    ) -> None:
        self._work = as_trial_workload(target)
        self._tolerance = tolerance
        self._ceilings = ceilings
        self._name = name
        self._memory_limit = memory_limit
        # A limit that cannot be set is refused before anything has run.
        with memory_limited(memory_limit):
            pass
        self._baseline: Baseline | None = None

    def can_apply(self, fix: Fix) -> str:
        """Fixes that apply to a workload, and do not need a process of their own."""
        if fix.apply is not None:
            return ""
        if fix.environment:
            return "has to be set when the process starts: give file.py:function or a script"
        return "applies to scripts: gobrrr fix train.py"

    def diagnose(self, fixes: Sequence[Fix], progress: Progress) -> tuple[Diagnosis, Facts]:
        """Of a copy with the fixes applied."""
        self._ceilings = self._ceilings or load_ceilings(refresh=False, progress=progress)
        title = self._name or _title(self._work)
        with left_as_found(self._work):
            try:
                copy = private_copy(self._work)
                return diagnose_with(copy, fixes, self._ceilings, title, progress)
            except GobrrrError:
                raise
            except Exception as error:
                raise _raised(error) from error

    def measure_null(self, budget_s: float) -> Null:
        """On two copies."""
        try:
            return measure_null(self._work, budget_s=budget_s)
        except GobrrrError:
            raise
        except Exception as error:
            raise _raised(error) from error

    def verify(
        self, fixes: Sequence[Fix], null: Null, light_s: float | None, budget_s: float,
        limit_s: float,
    ) -> Verification:  # fmt: skip
        """On copies, in turns. It shares the user's process, so that it cannot be ended."""
        self._baseline = self._baseline or prepare(self._work)
        with memory_limited(self._memory_limit):
            return verify_workload(
                self._work, fixes, null=null, baseline=self._baseline, speed_of_light_s=light_s,
                tolerance=self._tolerance, budget_s=budget_s,
            )  # fmt: skip

    def close(self) -> None:
        """Nothing lives on between trials."""


def diagnose_with(
    work: Workload,
    fixes: Sequence[Fix],
    ceilings: Ceilings,
    title: str,
    progress: Progress,
    *,
    can_restart: bool = False,
) -> tuple[Diagnosis, Facts]:
    """A workload, which is used up by it, with fixes applied."""
    with ExitStack() as stack:
        applied = [fix for fix in fixes if fix.apply is not None]
        program = as_program(apply_all(work, applied, stack))
        with counting_checkpoints() as checkpoints:
            done = diagnose_work(program, Plan(), ceilings, title, progress)
        facts = facts_of(done.diagnosis, done.analysis, workload=program, can_restart=can_restart)
    return done.diagnosis, replace(facts, checkpoints=checkpoints[0] > 0)


def _raised(error: Exception) -> UserCodeError:
    return UserCodeError(f"the step raised {type(error).__name__}: {error}")


def _title(work: Workload) -> str:
    model = work.model
    return getattr(model, "__qualname__", type(model).__name__)


class ProgramBench:
    """A function, script or module: built anew in each process.

    Raises InputError for a program that is not there, before anything of it has run.
    """

    def __init__(
        self, target: Target, tolerance: float = TOLERANCE, ceilings: Ceilings | None = None
    ) -> None:
        if target.is_function:
            path, _, name = target.name.rpartition(":")
            if not path or not name or not Path(path).is_file():
                raise InputError(f"{target.name}: give file.py:function, with a file that exists")
            require_function(path, name)
        else:
            load(target)
        self._target = target
        self._trials = ProgramTrials(target, tolerance=tolerance)
        self._ceilings = ceilings
        self._progress: Progress = silent

    @property
    def least_trial_s(self) -> float:
        """Seconds of measuring without which a trial says nothing."""
        return LEAST_TRIAL_S if self._target.is_function else LEAST_SCRIPT_TRIAL_S

    def can_apply(self, fix: Fix) -> str:
        """Why this fix cannot be applied to this kind of program; empty if it can."""
        return self._target.refusal(fix)

    def diagnose(self, fixes: Sequence[Fix], progress: Progress) -> tuple[Diagnosis, Facts]:
        """In a process of its own; a script up to the end of the measured steps."""
        self._progress = progress
        # Here, where progress is shown; the child finds them cached.
        self._ceilings = self._ceilings or load_ceilings(refresh=False, progress=progress)
        names = " + ".join(fix.name for fix in fixes)
        progress(f"diagnosing with {names}" if names else "diagnosing", 0, 0)
        return diagnose_in_child(self._target, fixes)

    def measure_null(self, budget_s: float) -> Null:
        """Two of it, in processes of their own. Raises InputError if they do not work out."""
        null = self._trials.measure_null(budget_s)
        if self._trials.turns is not None and self._trials.turns.not_deterministic:
            # Known now; what it means for each fix is said with its trial.
            self._progress("two plain runs differ, so that no fix can be compared", 0, 0)
        return null

    def verify(
        self, fixes: Sequence[Fix], null: Null, light_s: float | None, budget_s: float,
        limit_s: float,
    ) -> Verification:  # fmt: skip
        """With and without, in turns."""
        return self._trials.verify(
            fixes, speed_of_light_s=light_s, budget_s=budget_s, limit_s=limit_s
        )

    def close(self) -> None:
        """Ends what lives on between trials."""
        self._trials.close()


def diagnose_in_child(target: Target, fixes: Sequence[Fix]) -> tuple[Diagnosis, Facts]:
    """Diagnosis and facts of a program with fixes, from a process of its own.

    Its standard input is closed; what it prints is shown if the program itself fails.
    Raises InputError or UserCodeError with what the child says.
    """
    spec = Spec(DIAGNOSE, target, tuple(fix.name for fix in fixes))
    environment = joined_environment([fix.environment for fix in fixes])
    with Child(spec, environment) as child:
        try:
            answer = child.receive(MOST_DIAGNOSIS_S, "while it was diagnosed")
        except ChildFailed as failure:
            if "no sign" in str(failure):
                raise InputError(
                    f"{target.name} was not diagnosed within {whole_seconds(MOST_DIAGNOSIS_S)}: "
                    "give it less to do before its first steps"
                ) from None
            raise UserCodeError(f"{target.name} {failure}") from None
        if isinstance(answer, Diagnosed):
            facts: Facts = pickle.loads(answer.facts)
            return answer.diagnosis, facts
        assert isinstance(answer, Failed)
        if not answer.by_user:
            raise InputError(answer.error)
        sys.stderr.write(child.printed(None))
    raise UserCodeError(answer.error)
