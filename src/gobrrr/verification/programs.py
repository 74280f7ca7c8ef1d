"""Try fixes on a program in processes of its own, which may crash, hang or take all memory.

With and without the fixes, processes take turns. A function whose fixes need no variable of the
environment is tried more cheaply: on copies, side by side in one process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType

from gobrrr.diagnosis.fix_schema import FAILED, INCOMPARABLE, Verification
from gobrrr.fixes.fix import MEMORY, Fix
from gobrrr.measure.noise import is_quiet
from gobrrr.timeline.errors import InputError
from gobrrr.verification.alternation import (
    AFTER,
    Alternated,
    SideFailed,
    Start,
    alternate_processes,
    by_page_faults,
    record_of_one_run,
)
from gobrrr.verification.confirmation import timed_anew
from gobrrr.verification.evaluation import Evaluation, Expected
from gobrrr.verification.messages import (
    TAKE_TURNS,
    TRY_FIXES,
    Answer,
    Failed,
    MeasureNull,
    NullMeasured,
    Question,
    Ready,
    Spec,
    Target,
    Tried,
    Try,
)
from gobrrr.verification.numerics import NOTHING_COMPARED, TOLERANCE, Numerics, compare
from gobrrr.verification.processes import Child, ChildFailed, joined_environment
from gobrrr.verification.records import read_record
from gobrrr.verification.timing import Null, clear_of, hidden_by, null_of
from gobrrr.verification.trial import failed, trial_of

BUDGET_S = 60.0
# The null's share of the budget, where the caller has not measured it.
NULL_SHARE = 0.5
# A compiler may take minutes, and says nothing while it does.
TIME_LIMIT_S, START_LIMIT_S = 600.0, 300.0
SEED_IT = (
    "put torch.manual_seed(0) where it seeds with the time or the system's entropy, and fix the "
    "order of its data"
)
SEEDED_ALIKE = "Both sides of each trial were seeded alike: the script does not seed torch."
# Share of a trial's limit for more processes, where theirs differ so much that a change is hidden.
EXTRA_SHARE = 0.5


@dataclass(frozen=True)
class ProgramNull:
    """A program against itself, in processes that take turns.

    Attributes:
        null: its ratio; ``None`` where ``trouble`` says why there is none.
        original: what one plain run computed.
        repeated: what another computed.
        trouble: why no fix can be tried on this program; empty if one can.
        not_deterministic: a sentence if two plain runs computed different things, or left nothing
            that could be compared.
        seeded: a script has seeded torch itself; ``None`` of a function.
    """

    null: Null | None
    original: Evaluation | None = field(repr=False, default=None)
    repeated: Evaluation | None = field(repr=False, default=None)
    trouble: str = ""
    not_deterministic: str = ""
    seeded: bool | None = None


class ProgramTrials:
    """Trials of one program.

    Attributes:
        target: the program.
        tolerance: relative error that a fix may add.
        time_limit_s: a trial in one process that has no result by then is ended as hung.
        start_limit_s: where processes take turns, seconds until their steps must be warm.
        turns: what two plain runs gave; measured when it is first needed.
        step_source: what ends a script's steps; empty where it is unknown.
        told: called with why no fix can be compared, as soon as two plain runs have shown it.
    """

    def __init__(
        self,
        target: Target,
        *,
        tolerance: float = TOLERANCE,
        time_limit_s: float = TIME_LIMIT_S,
        start_limit_s: float = START_LIMIT_S,
        turns: ProgramNull | None = None,
    ) -> None:
        self.target = target
        self.tolerance = tolerance
        self.time_limit_s = time_limit_s
        self.start_limit_s = start_limit_s
        self.turns = turns
        self.step_source = ""
        self.told: Callable[[str], None] = lambda sentence: None
        # Lives on between trials; after a failed one it is new.
        self._child: Child | None = None
        self._null: Null | None = None

    def __enter__(self) -> ProgramTrials:
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
        """The program against itself; later trials are judged by it.

        Raises InputError if the program cannot be loaded or run.
        """
        if not self.target.is_function:
            self.turns = self._two_plain_runs(budget_s, self.start_limit_s)
            if self.turns.null is None:
                raise InputError(self.turns.trouble)
            return self.turns.null
        try:
            answer = self._ask(MeasureNull(budget_s), "its noise was measured", self.time_limit_s)
        except ChildFailed as failure:
            raise InputError(f"{self.target.name} {failure}") from None
        assert isinstance(answer, NullMeasured)
        self._null = answer.null
        return self._null

    def verify(
        self,
        fixes: Sequence[Fix],
        *,
        speed_of_light_s: float | None = None,
        budget_s: float = BUDGET_S,
        limit_s: float | None = None,
    ) -> Verification:
        """Try ``fixes`` together. Whatever they or the program do, the result is a trial.

        It is ended after ``limit_s``, if that is sooner than the usual limits. Of a script are
        compared the losses that ``backward`` is called on, the gradients of the first optimizer
        steps and how they move the parameters, or the first outputs of the outermost module. What
        a script writes to files it writes.
        """
        names = tuple(fix.name for fix in fixes)
        for fix in fixes:
            refusal = self.target.refusal(fix)
            if refusal:
                return failed(names, f"{fix.name} {refusal}")
        if not self.target.is_function or any(fix.environment for fix in fixes):
            return self._verify_in_turns(fixes, names, speed_of_light_s, budget_s, limit_s)
        try:
            null = self._null or self.measure_null(budget_s * NULL_SHARE)
            limit_s = min(limit_s or self.time_limit_s, self.time_limit_s)
            question = Try(names, null, speed_of_light_s, self.tolerance, budget_s, limit_s)
            answer = self._ask(question, "it was tried", limit_s)
        except ChildFailed as failure:
            return failed(names, f"the trial {failure}")
        except InputError as error:
            return failed(names, str(error))
        assert isinstance(answer, Tried)
        if answer.trial.verdict == FAILED:
            self.close()
        return answer.trial

    def time_anew(
        self, fixes: Sequence[Fix], null: Null, budget_s: float, limit_s: float
    ) -> Verification:
        """Their time once more, in fresh processes with and without them.

        What they compute was compared by ``verify``.
        """
        # Two processes at a time want the memory.
        self.close()
        if self.turns is not None and self.turns.null is not None:
            # What differs between two processes is more than what differs within one.
            null = self.turns.null

        def alternate(pairs: int) -> Alternated:
            return alternate_processes(
                self._start(), self._start(fixes), budget_s=budget_s,
                start_limit_s=min(limit_s, self.start_limit_s), enough=clear_of(null),
                most_pairs=pairs, hidden=hidden_by(null), extra_s=EXTRA_SHARE * limit_s,
            )  # fmt: skip

        return timed_anew(fixes, null, alternate)

    def _ask(self, question: Question, doing: str, limit_s: float) -> Answer:
        if self._child is None:
            self._child = Child(Spec(TRY_FIXES, self.target))
            self._answer("while it was loaded", self.start_limit_s)
        self._child.send(question)
        return self._answer(f"while {doing}", min(limit_s, self.time_limit_s))

    def _answer(self, doing: str, limit_s: float) -> Answer:
        assert self._child is not None
        try:
            answer = self._child.receive(limit_s, doing)
        except ChildFailed as failure:
            self.close()
            hint = ": it hangs, or takes too long" if "did not respond" in str(failure) else ""
            raise ChildFailed(f"{failure}{hint}") from None
        except BaseException:
            self.close()
            raise
        if isinstance(answer, Failed):
            self.close()
            raise InputError(answer.error)
        return answer

    def _start(self, fixes: Sequence[Fix] = (), *, eager_random: bool = False) -> Start:
        """How to start the program with these fixes."""
        what = "the function" if self.target.is_function else "the script"
        names = tuple(fix.name for fix in fixes)
        return Start(
            Spec(TAKE_TURNS, self.target, names, eager_random, self.step_source),
            joined_environment([fix.environment for fix in fixes]),
            f"{what} with the change" if fixes else what,
        )

    def _two_plain_runs(self, budget_s: float, start_limit_s: float) -> ProgramNull:
        """How near 1 their ratio is, and whether they compute the same."""
        sentence = ""

        def compare_both(ready: tuple[Ready, Ready]) -> None:
            nonlocal sentence
            if not sentence:
                sentence = self._differ(*(read_record(side.computed) for side in ready))
                if sentence:
                    self.told(sentence)

        try:
            got = alternate_processes(
                self._start(), self._start(), budget_s=budget_s, start_limit_s=start_limit_s,
                enough=is_quiet, when_warm=compare_both,
            )  # fmt: skip
        except SideFailed as failure:
            return ProgramNull(None, trouble=str(failure))
        one, other = (read_record(ready.computed) for ready in got.ready)
        null = null_of(got.measured.timed, got.measured.ratio)
        if not null.quiet:
            null = replace(null, cause=by_page_faults(got.kernel))
        return ProgramNull(null, one, other, "", sentence, got.ready[0].seeded)

    def _differ(self, one: Evaluation, other: Evaluation) -> str:
        """Why nothing can be compared with two plain runs like these; empty if it can."""
        agree = compare(Expected(one, one, "the first run"), other, self.tolerance)
        if agree.passed or agree.reason == NOTHING_COMPARED:
            return "" if agree.passed else NOTHING_COMPARED
        what = "function" if self.target.is_function else "script"
        return f"the {what} is not deterministic: two plain runs, seeded alike, differ; {SEED_IT}"

    def _verify_in_turns(
        self,
        fixes: Sequence[Fix],
        names: tuple[str, ...],
        speed_of_light_s: float | None,
        budget_s: float,
        limit_s: float | None,
    ) -> Verification:
        begun = time.monotonic()
        # Two processes at a time want the memory.
        self.close()
        start_limit_s = min(limit_s or self.start_limit_s, self.start_limit_s)
        if self.turns is None:
            self.turns = self._two_plain_runs(budget_s * NULL_SHARE, start_limit_s)
        plain = self.turns
        if plain.null is None or plain.original is None or plain.repeated is None:
            return failed(names, plain.trouble)
        try:
            got = alternate_processes(
                self._start(), self._start(fixes), budget_s=budget_s,
                start_limit_s=start_limit_s, enough=clear_of(plain.null),
                memory=any(MEMORY in fix.may_change for fix in fixes),
                hidden=hidden_by(plain.null), extra_s=EXTRA_SHARE * start_limit_s,
            )  # fmt: skip
        except SideFailed as failure:
            return failed(names, str(failure))
        if plain.not_deterministic:
            numerics = Numerics(INCOMPARABLE, plain.not_deterministic, tolerance=self.tolerance)
        else:
            # As far apart as two plain runs are is no fault of the fix.
            expected = Expected(plain.repeated, plain.original, "the plain run")
            changed = read_record(got.ready[AFTER].computed)
            numerics = compare(expected, changed, self.tolerance, fixes)
            if numerics.verdict == INCOMPARABLE:
                left_s = max(start_limit_s - (time.monotonic() - begun), 30.0)
                numerics = self._with_eager_randomness(fixes, expected, left_s) or numerics
        notices = () if got.measured.processes > 1 else ("timed in one pair of processes only",)
        return trial_of(
            fixes, got.measured, numerics, plain.null, speed_of_light_s, notices,
            got.ready[AFTER].idle,
        )  # fmt: skip

    def _with_eager_randomness(
        self, fixes: Sequence[Fix], expected: Expected, limit_s: float
    ) -> Numerics | None:
        """One more run, with compiled code told to draw random numbers as eager code does."""
        record = record_of_one_run(self._start(fixes, eager_random=True), limit_s)
        if record is None:
            return None
        again = compare(expected, record, self.tolerance, fixes)
        return None if again.verdict == INCOMPARABLE else again
