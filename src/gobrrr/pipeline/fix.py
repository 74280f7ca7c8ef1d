"""``gobrrr.fix``: find what makes a program faster, prove it, hand it over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from gobrrr import fixes as known
from gobrrr.attribution.cpu_run import Progress
from gobrrr.capture.workload import Workload
from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.schema import Diagnosis, Finding, Verification
from gobrrr.fixes.fix import Fix
from gobrrr.fixes.programs import as_program, is_module
from gobrrr.pipeline.fix_benches import ProgramBench, WorkloadBench
from gobrrr.pipeline.progress import shown
from gobrrr.search.found import Found, snippet_of
from gobrrr.search.options import Options, names_of, refuse_bad_choice, seconds_of
from gobrrr.search.search import Bench, search
from gobrrr.timeline.errors import GateFailure, InputError
from gobrrr.timeline.quantities import multiple
from gobrrr.verification.messages import Target
from gobrrr.verification.numerics import TOLERANCE
from gobrrr.verification.workloads import as_trial_workload

BUDGET_S = 300.0


@dataclass(frozen=True, repr=False)
class FixResult:
    """What ``gobrrr.fix`` found; printed, it is the report.

    Attributes:
        found: everything that was considered and tried.
        best_fixes: the fastest verified set, in the order of application; empty if nothing is
            faster than the program as it is.
    """

    found: Found
    best_fixes: tuple[Fix, ...]

    @property
    def diagnosis(self) -> Diagnosis:
        """The program as it is, with the findings."""
        return self.found.diagnosis

    @property
    def findings(self) -> list[Finding]:
        """Every fix with a prediction, and its verification if it was tried."""
        return self.found.diagnosis.findings

    @property
    def best(self) -> Verification | None:
        """The trial of the fastest verified set."""
        return self.found.best

    @property
    def speedup(self) -> float:
        """Of the fastest verified set; 1 if there is none."""
        best = self.found.best
        return best.speedup.median if best is not None and best.speedup is not None else 1.0

    @property
    def ruled_out(self) -> dict[str, str]:
        """Name of each fix that was not tried, and why."""
        return {fix.name: reason for fix, reason in self.found.ruled_out}

    @property
    def snippet(self) -> str:
        """The fastest verified set as code; empty if there is none."""
        return snippet_of(self.best_fixes)

    def __str__(self) -> str:
        return str(self.diagnosis)

    def __repr__(self) -> str:
        names = " + ".join(fix.name for fix in self.best_fixes)
        best = f"{names}, {multiple(self.speedup)}" if names else "nothing is faster"
        return f"<FixResult: {best}>"

    def apply(self, target: Any) -> Any:
        """The target with the best set applied: a module for a module, else a ``Workload``.

        Global settings that the fixes need (threads, precision) are left on. The module's
        parameters are shared with what is returned.
        """
        work = as_trial_workload(target) if not is_module(target) else Workload(target)
        changed: Workload = as_program(work)
        # Nothing is undone: it is what the user asked for.
        stack = ExitStack()
        for fix in self.best_fixes:
            if fix.apply is not None:
                changed = stack.enter_context(fix.apply(changed))
        stack.pop_all()
        if not is_module(target):
            return changed
        return _module_with(as_program(changed))


def _module_with(program: Any) -> Any:
    """A model that carries the settings of its program."""
    settings = (*program.around_step, *program.around_forward)
    if not settings:
        return program.model
    import torch

    class Changed(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = program.model

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            with ExitStack() as stack:
                for setting in settings:
                    stack.enter_context(setting())
                return self.model(*args, **kwargs)

    return Changed()


def fix(
    target: Any,
    *,
    only: str | Sequence[str] = (),
    exclude: str | Sequence[str] = (),
    tolerance: float = TOLERANCE,
    budget: float | str = BUDGET_S,
    memory_limit: int | None = None,
    require: float | None = None,
    name: str | None = None,
    ceilings: Ceilings | None = None,
    progress: Progress | bool | None = None,
) -> FixResult:
    """Predict, try and verify fixes; returns what was found, the best verified set first.

    Args:
        target: a callable without arguments, ``(module, inputs)`` or a ``Workload``, tried on
            copies in this process; or ``"file.py:function"``, tried in processes of its own.
        only: names of the fixes to try; a string is one name, or several with commas between.
        exclude: names of fixes not to try, likewise.
        tolerance: relative L2 error that a fix may add to any output, loss or gradient.
        budget: for all trials: seconds, or a time such as ``"40s"`` or ``"5m"``.
        memory_limit: bytes that a trial may take beyond what its process holds when it begins;
            one that needs more has failed. Linux only. In this process (no string for a target)
            the program as it is is not limited, and a thread of native code that is refused
            memory may end the process, as it may end a process of its own.
        require: raise ``GateFailure`` unless a verified set reaches this speedup.
        name: what the diagnosis calls the program.
        ceilings: of this machine, if they are known.
        progress: by default sentences on stderr after two seconds; ``False`` for none, or a
            function of ``(phase, done, wanted)``.

    Raises InputError for a target that cannot be run, an unknown name, a choice that leaves no fix
    to try, a budget or tolerance that is none or a memory limit that cannot be set here, before
    anything has run; UserCodeError if the program itself raises.
    """
    only, exclude, budget_s = names_of(only), names_of(exclude), seconds_of(budget)
    refuse_bad_choice(only, exclude)
    if not 0.0 < tolerance < math.inf:
        raise InputError(f"{tolerance!r} is not a relative error such as {TOLERANCE:g}")
    bench: Bench
    with shown(progress) as tell:
        if isinstance(target, str):
            program = Target("function", target, memory_limit_bytes=memory_limit)
            bench = ProgramBench(program, tolerance, ceilings)
        else:
            bench = WorkloadBench(target, tolerance, ceilings, name, memory_limit)
        return fix_on(bench, Options(only, exclude, budget_s), require, tell)


def fix_on(bench: Bench, options: Options, require: float | None, progress: Progress) -> FixResult:
    """The search on any kind of program. Raises GateFailure if ``require`` is not reached."""
    try:
        found = search(bench, known.FIXES, options, progress)
    finally:
        bench.close()
    by_name = {fix.name: fix for fix in known.FIXES}
    best = found.best.fixes if found.best is not None else ()
    result = FixResult(found, tuple(by_name[name] for name in best))
    if require is not None and result.speedup < require:
        raise FixGateFailure(result, require)
    return result


class FixGateFailure(GateFailure):
    """No verified set of fixes is as fast as was required; ``result`` is what was found."""

    def __init__(self, result: FixResult, require: float) -> None:
        super().__init__(
            f"no verified fix reaches {require:g}x: the best is {multiple(result.speedup)}"
        )
        self.result = result
