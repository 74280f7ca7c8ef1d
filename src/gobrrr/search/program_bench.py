"""A program in processes of its own, as the search sees it."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gobrrr.devices import ceilings_beforehand
from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.facts import Facts
from gobrrr.diagnosis.schema import Diagnosis, Verification
from gobrrr.fixes.fix import Fix
from gobrrr.measure.load import LoadWatch
from gobrrr.measure.progress import Progress, silent
from gobrrr.search.workload_bench import LEAST_TRIAL_S
from gobrrr.timeline.errors import InputError, UserCodeError
from gobrrr.timeline.function_names import require_function
from gobrrr.timeline.quantities import whole_seconds
from gobrrr.verification.confirmation import confirmed
from gobrrr.verification.disturbance import judged_by_load
from gobrrr.verification.messages import Diagnosed, Failed, Spec, Target
from gobrrr.verification.numerics import TOLERANCE
from gobrrr.verification.processes import Child, ChildFailed, joined_environment
from gobrrr.verification.programs import SEEDED_ALIKE, ProgramTrials
from gobrrr.verification.sides import load
from gobrrr.verification.timing import Null

# A program that takes this long to start and be diagnosed cannot be tried in minutes.
MOST_DIAGNOSIS_S = 900.0
# As ``LEAST_TRIAL_S``: of a script, processes start too.
LEAST_SCRIPT_TRIAL_S = 10.0


class ProgramBench:
    """A function, script or module: built anew in each process.

    ``diagnosing``: the job that diagnoses it in such a process, as ``module:function``.
    Raises InputError for a program that is not there, before anything of it has run.
    """

    def __init__(
        self,
        target: Target,
        diagnosing: str,
        tolerance: float = TOLERANCE,
        ceilings: Ceilings | None = None,
    ) -> None:
        if target.is_function:
            path, _, name = target.name.rpartition(":")
            if not path or not name or not Path(path).is_file():
                raise InputError(f"{target.name}: give file.py:function, with a file that exists")
            require_function(path, name)
        else:
            load(target)
        self._target = target
        self._diagnosing = diagnosing
        self._trials = ProgramTrials(target, tolerance=tolerance)
        self._ceilings = ceilings
        self._progress: Progress = silent

    @property
    def inputs(self) -> Any:
        """Nothing: a program in its own process keeps them there."""
        return ()

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
        self._ceilings = self._ceilings or ceilings_beforehand(refresh=False, progress=progress)
        names = " + ".join(fix.name for fix in fixes)
        progress(f"diagnosing with {names}" if names else "diagnosing", 0, 0)
        diagnosis, facts = diagnose_in_child(self._target, fixes, self._diagnosing)
        self._trials.step_source = self._trials.step_source or facts.step_source
        return diagnosis, facts

    def measure_null(self, budget_s: float) -> Null:
        """Two of it, in processes of their own. Raises InputError if they do not work out."""
        # Known before anything is timed; what it means for each fix is said with its trial.
        self._trials.told = lambda why: self._progress(f"no fix can be compared: {why}", 0, 0)
        return self._trials.measure_null(budget_s)

    @property
    def notices(self) -> list[str]:
        """What holds for each trial, once the program has been timed against itself."""
        plain = self._trials.turns
        if plain is None:
            return []
        if plain.not_deterministic:
            return [f"No fix could be compared: {plain.not_deterministic}."]
        return [SEEDED_ALIKE] if plain.seeded is False else []

    def verify(
        self, fixes: Sequence[Fix], null: Null, light_s: float | None, budget_s: float,
        limit_s: float,
    ) -> Verification:  # fmt: skip
        """With and without, in turns."""
        watch = LoadWatch()
        trial = self._trials.verify(
            fixes, speed_of_light_s=light_s, budget_s=budget_s, limit_s=limit_s
        )
        return judged_by_load(trial, fixes, watch.so_far())

    def measure_again(
        self, fixes: Sequence[Fix], trial: Verification, null: Null, budget_s: float,
        limit_s: float,
    ) -> Verification:  # fmt: skip
        """In fresh processes, each with or without the fixes from its start."""
        watch = LoadWatch()
        again = self._trials.time_anew(fixes, null, budget_s, limit_s)
        again = judged_by_load(again, fixes, watch.so_far())
        return confirmed(trial, again, "in fresh processes")

    def close(self) -> None:
        """Ends what lives on between trials."""
        self._trials.close()


def diagnose_in_child(target: Target, fixes: Sequence[Fix], job: str) -> tuple[Diagnosis, Facts]:
    """Diagnosis and facts of a program with fixes, from a process of its own.

    Its standard input is closed; what it prints is shown if the program itself fails.
    Raises InputError or UserCodeError with what the child says.
    """
    spec = Spec(job, target, tuple(fix.name for fix in fixes))
    environment = joined_environment([fix.environment for fix in fixes])
    with Child(spec, environment) as child:
        try:
            answer = child.receive(MOST_DIAGNOSIS_S, "while it was diagnosed")
        except ChildFailed as failure:
            if "did not respond" in str(failure):
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
