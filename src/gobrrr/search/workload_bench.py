"""A workload of this process as the search sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gobrrr.devices import ceilings_beforehand
from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.facts import Facts
from gobrrr.diagnosis.schema import Diagnosis, Verification
from gobrrr.fixes.fix import Fix
from gobrrr.measure.load import LoadWatch
from gobrrr.measure.progress import Progress
from gobrrr.timeline.errors import GobrrrError, UserCodeError
from gobrrr.timeline.workload import Workload, title_of
from gobrrr.verification.confirmation import confirmed
from gobrrr.verification.copies import private_copy
from gobrrr.verification.disturbance import judged_by_load
from gobrrr.verification.memory import memory_limited
from gobrrr.verification.numerics import TOLERANCE
from gobrrr.verification.timing import Null
from gobrrr.verification.workloads import (
    Baseline,
    as_trial_workload,
    left_as_found,
    measure_null,
    prepare,
    verify_workload,
)

# Seconds of measuring without which a trial says nothing.
LEAST_TRIAL_S = 2.0
# Diagnoses a workload, which is used up by it, with fixes applied, and by its title.
DiagnoseWith = Callable[
    [Workload, Sequence[Fix], Ceilings | None, str, Progress], tuple[Diagnosis, Facts]
]


class WorkloadBench:
    """A workload of this process: fixes are applied to copies of it."""

    least_trial_s = LEAST_TRIAL_S
    notices: Sequence[str] = ()

    def __init__(
        self,
        target: Any,
        diagnose_with: DiagnoseWith,
        tolerance: float = TOLERANCE,
        ceilings: Ceilings | None = None,
        name: str | None = None,
        memory_limit: int | None = None,
    ) -> None:
        self._work = as_trial_workload(target)
        self._diagnose_with = diagnose_with
        self._tolerance = tolerance
        self._ceilings = ceilings
        self._name = name
        self._memory_limit = memory_limit
        # A limit that cannot be set is refused before anything has run.
        with memory_limited(memory_limit):
            pass
        self._baseline: Baseline | None = None

    @property
    def inputs(self) -> Any:
        """What the model is tried on."""
        return self._work.inputs

    def can_apply(self, fix: Fix) -> str:
        """Fixes that apply to a workload, and do not need a process of their own."""
        if fix.apply is not None:
            return ""
        if fix.environment:
            return "has to be set when the process starts: give file.py:function or a script"
        return "applies to scripts: gobrrr fix train.py"

    def diagnose(self, fixes: Sequence[Fix], progress: Progress) -> tuple[Diagnosis, Facts]:
        """Of a copy with the fixes applied."""
        self._ceilings = self._ceilings or ceilings_beforehand(refresh=False, progress=progress)
        title = self._name or title_of(self._work)
        with left_as_found(self._work):
            try:
                copy = private_copy(self._work)
                return self._diagnose_with(copy, fixes, self._ceilings, title, progress)
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
            watch = LoadWatch()
            trial = verify_workload(
                self._work, fixes, null=null, baseline=self._baseline, speed_of_light_s=light_s,
                tolerance=self._tolerance, budget_s=budget_s,
            )  # fmt: skip
        return judged_by_load(trial, fixes, watch.so_far())

    def measure_again(
        self, fixes: Sequence[Fix], trial: Verification, null: Null, budget_s: float,
        limit_s: float,
    ) -> Verification:  # fmt: skip
        """On fresh copies: what is in this process cannot be had in another."""
        again = self.verify(fixes, null, None, budget_s, limit_s)
        return confirmed(trial, again, "on fresh copies")

    def close(self) -> None:
        """Nothing lives on between trials."""


def _raised(error: Exception) -> UserCodeError:
    return UserCodeError(f"the step raised {type(error).__name__}: {error}")
