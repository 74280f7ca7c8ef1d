"""``gobrrr.fix``: find what makes a program faster, prove it, hand it over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gobrrr.devices.ceilings import Ceilings
from gobrrr.fixes import catalogue as known
from gobrrr.measure.progress import Progress, shown
from gobrrr.pipeline.diagnosed_with import IN_CHILD, diagnose_with
from gobrrr.search.options import (
    Options,
    names_of,
    refuse_bad_allowance,
    refuse_bad_choice,
    seconds_of,
)
from gobrrr.search.program_bench import ProgramBench
from gobrrr.search.result import FixGateFailure, FixResult
from gobrrr.search.search import Bench, search
from gobrrr.search.workload_bench import WorkloadBench
from gobrrr.timeline.errors import InputError
from gobrrr.verification.messages import Target
from gobrrr.verification.numerics import TOLERANCE

BUDGET_S = 300.0


def fix(
    target: Any,
    *,
    only: str | Sequence[str] = (),
    exclude: str | Sequence[str] = (),
    allow: str | Sequence[str] = (),
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
        allow: ``"precision"``: the best set may hold changes of precision (bf16, TF32, float32 for
            float64). Without, they are tried and told apart, with their error, unless ``only``
            names them.
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
    allowed = names_of(allow) if allow else ()
    refuse_bad_allowance(allowed)
    if not 0.0 < tolerance < math.inf:
        raise InputError(f"{tolerance!r} is not a relative error such as {TOLERANCE:g}")
    bench: Bench
    with shown(progress) as tell:
        if isinstance(target, str):
            program = Target("function", target, memory_limit_bytes=memory_limit)
            bench = program_bench(program, tolerance, ceilings)
        else:
            bench = WorkloadBench(target, diagnose_with, tolerance, ceilings, name, memory_limit)
        return fix_on(bench, Options(only, exclude, budget_s, allowed), require, tell)


def program_bench(
    target: Target, tolerance: float = TOLERANCE, ceilings: Ceilings | None = None
) -> ProgramBench:
    """A function, script or module that can be diagnosed, and on which fixes can be tried."""
    return ProgramBench(target, IN_CHILD, tolerance, ceilings)


def fix_on(bench: Bench, options: Options, require: float | None, progress: Progress) -> FixResult:
    """The search on any kind of program. Raises GateFailure if ``require`` is not reached."""
    try:
        found = search(bench, known.FIXES, options, progress)
    finally:
        bench.close()
    by_name = {fix.name: fix for fix in known.FIXES}
    best = found.best.fixes if found.best is not None else ()
    result = FixResult(found, tuple(by_name[name] for name in best), bench.inputs)
    if require is not None and result.speedup < require:
        raise FixGateFailure(result, require)
    return result
