"""Try fixes on an unmodified script: fresh processes with and without, which take turns."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gobrrr.fixes.fix import MEMORY, Fix
from gobrrr.verification.alternation import (
    AFTER,
    BEFORE,
    Alternated,
    SideFailed,
    Start,
    alternate_processes,
    record_of_one_run,
)
from gobrrr.verification.child import REGISTRY
from gobrrr.verification.evaluation import Evaluation, Expected
from gobrrr.verification.numerics import TOLERANCE, Numerics, compare
from gobrrr.verification.processes import joined_environment
from gobrrr.verification.records import read_record
from gobrrr.verification.timing import Null, clear_of, is_quiet, judge, null_of
from gobrrr.verification.trial import FASTER, INCOMPARABLE, Trial, failed

BUDGET_S = 60.0
START_LIMIT_S = 300.0


@dataclass(frozen=True)
class ScriptTarget:
    """A script or module with its arguments.

    Attributes:
        name: path of the script, or the module's name.
        argv: its arguments.
        is_module: run it as ``python -m``.
        registry: where the child finds the fixes by name.
        memory_limit_bytes: what each process may take beyond what it holds when the script starts.
        start_limit_s: seconds until its steps must be warm.
        threads: ``torch.set_num_threads`` before the script starts.
    """

    name: str
    argv: tuple[str, ...] = ()
    is_module: bool = False
    registry: str = REGISTRY
    memory_limit_bytes: int | None = None
    start_limit_s: float = START_LIMIT_S
    threads: int | None = None

    def start(self, fixes: Sequence[Fix] = (), **more: Any) -> Start:
        """How to start it with these fixes."""
        spec = {
            "kind": "module" if self.is_module else "script", "target": self.name,
            "argv": self.argv, "registry": self.registry, "threads": self.threads,
            "memory_limit_bytes": self.memory_limit_bytes,
            "fixes": [fix.name for fix in fixes], **more,
        }  # fmt: skip
        environment = joined_environment([fix.environment for fix in fixes])
        return Start(spec, environment, "the script with the change" if fixes else "the script")


@dataclass(frozen=True)
class ScriptNull:
    """The script against itself.

    Attributes:
        null: its ratio; ``None`` where ``trouble`` says why there is none.
        original: what one plain run computed.
        repeated: what another computed.
        trouble: why no fix can be tried on this script; empty if one can.
        not_deterministic: a sentence if two plain runs computed different things.
        started_s: seconds until its steps were warm.
    """

    null: Null | None
    original: Evaluation | None = field(repr=False, default=None)
    repeated: Evaluation | None = field(repr=False, default=None)
    trouble: str = ""
    not_deterministic: str = ""
    started_s: float = 0.0


def measure_script_null(
    target: ScriptTarget, *, budget_s: float = BUDGET_S / 2, tolerance: float = TOLERANCE
) -> ScriptNull:
    """Two plain runs in turns: how near 1 their ratio is, and whether they compute the same."""
    try:
        got = alternate_processes(
            target.start(), target.start(), budget_s=budget_s,
            start_limit_s=target.start_limit_s, enough=is_quiet,
        )  # fmt: skip
    except SideFailed as failure:
        return ScriptNull(None, trouble=str(failure))
    one, other = (read_record(ready["record"]) for ready in got.ready)
    agree = compare(Expected(one, one, "the first run"), other, tolerance)
    sentence = ""
    if not agree.passed:
        sentence = (
            "the script is not deterministic: two plain runs with the same seeds differ "
            f"({agree.reason}); fix its order of data and its seeds to have fixes compared"
        )
    started_s = float(got.ready[0]["started_s"])
    return ScriptNull(null_of(got.timed, got.ratio), one, other, "", sentence, started_s)


def verify_script(
    target: ScriptTarget,
    fixes: Sequence[Fix],
    *,
    null: ScriptNull | None = None,
    speed_of_light_s: float | None = None,
    tolerance: float = TOLERANCE,
    budget_s: float = BUDGET_S,
    limit_s: float | None = None,
) -> Trial:
    """Run the script with and without ``fixes`` in turns, a few steps each, unprofiled.

    Compared are the losses that ``backward`` is called on, the gradients of the first optimizer
    steps and how they move the parameters, or the first outputs of the outermost module. Whatever
    the script or the fixes do, the result is a trial. What the script writes to files it writes.
    Steps have to be warm after ``limit_s``, at the most the target's ``start_limit_s``.
    """
    start_limit_s = min(limit_s or target.start_limit_s, target.start_limit_s)
    names = tuple(fix.name for fix in fixes)
    for fix in fixes:
        if fix.in_script is None and not fix.environment:
            return failed(names, f"{fix.name} cannot be applied to a script from outside")
    begun = time.monotonic()
    null = null or measure_script_null(target, budget_s=budget_s / 2, tolerance=tolerance)
    if null.null is None or null.original is None or null.repeated is None:
        return failed(names, null.trouble)
    try:
        got = alternate_processes(
            target.start(), target.start(fixes), budget_s=budget_s,
            start_limit_s=start_limit_s, enough=clear_of(null.null),
            memory=any(MEMORY in fix.may_change for fix in fixes),
        )  # fmt: skip
    except SideFailed as failure:
        return failed(names, str(failure))
    if null.not_deterministic:
        numerics = Numerics(INCOMPARABLE, null.not_deterministic, tolerance=tolerance)
    else:
        # As far apart as two plain runs are is no fault of the fix.
        expected = Expected(null.repeated, null.original, "the plain run")
        numerics = compare(expected, read_record(got.ready[AFTER]["record"]), tolerance)
        if numerics.verdict == INCOMPARABLE:
            left_s = max(start_limit_s - (time.monotonic() - begun), 30.0)
            numerics = _with_eager_randomness(target, fixes, expected, tolerance, left_s, numerics)
    return _trial(names, got, null.null, numerics, speed_of_light_s)


def _with_eager_randomness(
    target: ScriptTarget,
    fixes: Sequence[Fix],
    expected: Expected,
    tolerance: float,
    limit_s: float,
    numerics: Numerics,
) -> Numerics:
    """One more run, with compiled code told to draw random numbers as eager code does."""
    start = target.start(fixes, eager_random=True)
    record = record_of_one_run(start, limit_s)
    if record is None:
        return numerics
    again = compare(expected, record, tolerance)
    return numerics if again.verdict == INCOMPARABLE else again


def _trial(
    names: tuple[str, ...],
    got: Alternated,
    null: Null,
    numerics: Numerics,
    speed_of_light_s: float | None,
) -> Trial:
    verdict, reason = judge(got.timed, null, speed_of_light_s, got.ratio)
    if not numerics.passed:
        verdict, reason = numerics.verdict, numerics.reason
    compile_s = max(0.0, got.ready[AFTER]["started_s"] - got.ready[BEFORE]["started_s"])
    gain_s = got.timed.before_s - got.timed.after_s
    notices = () if got.pairs > 1 else ("timed in one pair of processes only",)
    return Trial(
        names, verdict, reason, speedup=got.ratio, before_s=got.timed.before_s,
        after_s=got.timed.after_s, compile_s=compile_s,
        break_even_steps=math.ceil(compile_s / gain_s) if verdict == FASTER else None,
        peak_memory_bytes=got.peak_bytes, step_memory_before_bytes=got.step_memory_bytes[BEFORE],
        step_memory_bytes=got.step_memory_bytes[AFTER], numerics=numerics.as_record(),
        notices=notices,
    )  # fmt: skip
