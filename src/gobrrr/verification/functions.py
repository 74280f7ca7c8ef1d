"""Try fixes on a ``file.py:function`` target in a process of its own, which may crash or hang."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from gobrrr.fixes.fix import Fix
from gobrrr.timeline.errors import InputError
from gobrrr.verification.alternation import (
    AFTER,
    SideFailed,
    Start,
    alternate_processes,
    record_of_one_run,
)
from gobrrr.verification.child import REGISTRY
from gobrrr.verification.evaluation import Expected
from gobrrr.verification.function_child import null_message, read_null
from gobrrr.verification.numerics import TOLERANCE, compare
from gobrrr.verification.processes import Child, ChildFailed, joined_environment
from gobrrr.verification.records import read_record
from gobrrr.verification.timing import Null, clear_of, is_quiet, judge, null_of
from gobrrr.verification.trial import FASTER, INCOMPARABLE, Trial, failed, trial_from_message
from gobrrr.verification.workloads import BUDGET_S, NULL_SHARE

# A compiler may take minutes, and says nothing while it does.
TIME_LIMIT_S = 600.0
LOAD_LIMIT_S = 300.0


class FunctionTrials:
    """Trials of one function. The process lives on between trials; after a failed one it is new.

    Attributes:
        target: ``file.py:function``.
        time_limit_s: a trial that has no result after this many seconds is ended as hung.
    """

    def __init__(
        self,
        target: str,
        *,
        registry: str = REGISTRY,
        memory_limit_bytes: int | None = None,
        time_limit_s: float = TIME_LIMIT_S,
        threads: int | None = None,
    ) -> None:
        self.target = target
        self.time_limit_s = time_limit_s
        self._spec = {
            "target": target, "registry": registry, "memory_limit_bytes": memory_limit_bytes,
            "threads": threads,
        }  # fmt: skip
        self._child: Child | None = None
        self._null: Null | None = None
        self._null_of_processes: Null | None = None

    def __enter__(self) -> FunctionTrials:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def measure_null(self, budget_s: float = BUDGET_S * NULL_SHARE) -> Null:
        """The function against itself; later trials are judged by it.

        Raises InputError if the function cannot be loaded or run.
        """
        try:
            answer = self._ask({"do": "null", "budget_s": budget_s}, self.time_limit_s)
        except ChildFailed as failure:
            raise InputError(f"{self.target} {failure}") from None
        self._null = read_null(answer["null"])
        return self._null

    def verify(
        self,
        fixes: Sequence[Fix],
        *,
        speed_of_light_s: float | None = None,
        tolerance: float = TOLERANCE,
        budget_s: float = BUDGET_S,
        limit_s: float | None = None,
    ) -> Trial:
        """Try ``fixes`` together. Whatever they do, the result is a trial.

        It is ended after ``limit_s``, by default and at the most ``time_limit_s``.
        """
        limit_s = self.time_limit_s if limit_s is None else min(limit_s, self.time_limit_s)
        names = tuple(fix.name for fix in fixes)
        for fix in fixes:
            if fix.apply is None and not fix.environment:
                return failed(names, f"{fix.name} cannot be applied to a function")
        if any(fix.environment for fix in fixes):
            return self._verify_in_processes(
                fixes, names, speed_of_light_s, tolerance, budget_s, limit_s
            )
        try:
            self._null = self._null or self.measure_null(budget_s * NULL_SHARE)
            answer = self._ask(
                {
                    "do": "try", "fixes": names, "speed_of_light_s": speed_of_light_s,
                    "tolerance": tolerance, "budget_s": budget_s,
                    "null": null_message(self._null),
                },
                limit_s,
            )  # fmt: skip
        except (ChildFailed, InputError) as failure:
            return failed(names, f"the trial {failure}" if type(failure) is ChildFailed else
                          str(failure))  # fmt: skip
        trial = trial_from_message(answer["trial"])
        if trial.verdict == "failed":
            self.close()
        return trial

    def _ask(self, question: dict[str, Any], limit_s: float) -> dict[str, Any]:
        if self._child is None:
            self._child = Child({"kind": "function", **self._spec})
            self._answer("while it was loaded", LOAD_LIMIT_S)
        self._child.send(question)
        doing = "while the null was measured" if question["do"] == "null" else "while it was tried"
        return self._answer(doing, limit_s)

    def _answer(self, doing: str, limit_s: float) -> dict[str, Any]:
        assert self._child is not None
        try:
            answer = self._child.receive(limit_s, doing)
        except ChildFailed as failure:
            self.close()
            hint = ": it hangs, or takes too long" if "no sign" in str(failure) else ""
            raise ChildFailed(f"{failure}{hint}") from None
        if "error" in answer:
            self.close()
            raise InputError(answer["error"])
        return answer

    def _verify_in_processes(
        self,
        fixes: Sequence[Fix],
        names: tuple[str, ...],
        speed_of_light_s: float | None,
        tolerance: float,
        budget_s: float,
        limit_s: float,
    ) -> Trial:
        """With variables that must be set at the start of a process: two processes take turns."""
        before = Start({"kind": "turns", "fixes": [], **self._spec}, {}, "the unchanged function")
        after = Start(
            {"kind": "turns", "fixes": names, **self._spec},
            joined_environment([fix.environment for fix in fixes]),
            "the changed function",
        )
        # Two processes at a time want the memory.
        self.close()
        try:
            if self._null_of_processes is None:
                got = alternate_processes(
                    before, before, budget_s=budget_s * NULL_SHARE,
                    start_limit_s=limit_s, enough=is_quiet,
                )  # fmt: skip
                self._null_of_processes = null_of(got.timed, got.ratio)
            null = self._null_of_processes
            got = alternate_processes(
                before, after, budget_s=budget_s, start_limit_s=limit_s,
                enough=clear_of(null),
            )  # fmt: skip
        except SideFailed as failure:
            return failed(names, str(failure))
        original = read_record(got.ready[0]["record"])
        numerics = compare(
            Expected(original, original, "the original"),
            read_record(got.ready[AFTER]["record"]),
            tolerance,
        )
        if numerics.verdict == INCOMPARABLE:
            spec = {**after.spec, "eager_random": True}
            record = record_of_one_run(replace(after, spec=spec), self.time_limit_s)
            if record is not None:
                again = compare(Expected(original, original, "the original"), record, tolerance)
                numerics = numerics if again.verdict == INCOMPARABLE else again
        verdict, reason = judge(got.timed, null, speed_of_light_s, got.ratio)
        if not numerics.passed:
            verdict, reason = numerics.verdict, numerics.reason
        compile_s = max(0.0, got.ready[1]["first_steps_s"] - got.ready[0]["first_steps_s"])
        gain_s = got.timed.before_s - got.timed.after_s
        return Trial(
            names, verdict, reason, speedup=got.ratio, before_s=got.timed.before_s,
            after_s=got.timed.after_s, first_call_s=got.ready[1]["first_call_s"],
            compile_s=compile_s,
            break_even_steps=math.ceil(compile_s / gain_s) if verdict == FASTER else None,
            peak_memory_bytes=got.peak_bytes, numerics=numerics.as_record(),
        )  # fmt: skip
