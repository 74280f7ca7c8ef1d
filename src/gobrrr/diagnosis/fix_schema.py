"""What a diagnosis says of fixes: predicted, tried, and the best set of them."""

from __future__ import annotations

from typing import Any

from gobrrr.diagnosis.record import Record


class Prediction(Record, kw_only=True):
    """Seconds per step that a fix will save."""

    low_s: float
    expected_s: float
    high_s: float
    speedup: float

    def tells(self, step_s: float) -> bool:
        """Whether it says anything of a step of this many seconds.

        Not where its interval is as wide as the step, and not where more may be lost than is
        expected to be won.
        """
        risk = self.high_s > 0 and -self.low_s > max(self.expected_s, 0.0)
        return self.high_s - self.low_s < step_s and not risk


class Portion(Record, kw_only=True):
    """A share of the wall time that a remedy saves, with its interval."""

    low: float
    expected: float
    high: float


class Ratio(Record, kw_only=True):
    """A measured speedup with its interval."""

    median: float
    low: float
    high: float


FASTER, SAME, SLOWER = "faster", "same", "slower"
ELIMINATED_WORK, FAILED, INCOMPARABLE = "eliminated_work", "failed", "incomparable"
# It found nothing to change: what the fix would do is as unknown as before.
NOT_APPLIED = "not_applied"
VERDICTS = (FASTER, SAME, SLOWER, ELIMINATED_WORK, FAILED, INCOMPARABLE, NOT_APPLIED)


class Verification(Record, kw_only=True):
    """One set of fixes, tried: before against after, measured, and what both compute compared.

    Times are seconds per step, unless they say otherwise; ``None`` is not measured, or unknown.

    Attributes:
        fixes: their names; empty for the program against itself.
        verdict: one of ``VERDICTS``.
        reason: one sentence that says why the verdict is what it is.
        speedup: before / after with its 95 % interval; ``None`` if nothing was timed.
        counts_above: what the whole interval of a speedup had to lie above.
        before_s: median as it was.
        after_s: median with the fixes.
        first_call_s: seconds of the first step with the fixes, what they set up included.
        compile_s: seconds that the first steps took beyond later ones, above what the unchanged
            program's first steps took beyond its own.
        break_even_steps: steps after which ``compile_s`` is won back; ``None`` if never or unknown.
        peak_memory_bytes: the most memory held with the fixes.
        step_memory_bytes: the most that tensors made within a step take at once with the fixes.
        step_memory_before_bytes: the same as it was.
        modules: outermost modules with parameters that the fixes came upon in a script.
        numerics: what was compared and what came out; ``None`` if it did not get that far.
        notices: sentences on what limits the trial.
    """

    fixes: list[str] = []
    speedup: Ratio | None = None
    counts_above: float | None = None
    verdict: str
    reason: str = ""
    numerics: dict[str, Any] | None = None
    before_s: float | None = None
    after_s: float | None = None
    first_call_s: float | None = None
    compile_s: float | None = None
    break_even_steps: float | None = None
    peak_memory_bytes: int | None = None
    step_memory_bytes: int | None = None
    step_memory_before_bytes: int | None = None
    modules: int | None = None
    notices: list[str] = []

    @property
    def won(self) -> bool:
        """Whether the fixes count as an improvement."""
        return self.verdict == FASTER


class Finding(Record, kw_only=True):
    """A fix with its prediction and, once tried, its verification.

    ``leaves`` are those that it takes time from, so that a report can point from one to the other.
    ``advice``: a change that only the user can make, which is predicted and never tried.
    ``precision``: what it computes in instead of the program's own type; empty: it keeps that.
    ``remedy``: the change as a user would write it, where it is not ``verify``'s alone; ``words``,
    of a known cause: what people search for; ``verify``: the command that tries it, before the
    program (empty: none does); ``cause_share``: of the wall time, what it takes (``None``:
    unknown); ``of_wall``: what is saved of the wall time where
    that is outside the steps.
    ``saving_s``: seconds of the step after a search: what was measured, where that tells, otherwise
    what is predicted; ``None`` before.
    """

    fix: str
    prediction: Prediction | None
    because: str
    verification: Verification | None = None
    title: str | None = None
    sources: list[str] = []
    leaves: list[str] = []
    advice: bool = False
    precision: str = ""
    saving_s: float | None = None
    words: list[str] = []
    remedy: str = ""
    verify: str = ""
    cause_share: float | None = None
    of_wall: Portion | None = None

    @property
    def is_cause(self) -> bool:
        """Whether it is a known cause, which names what happens rather than a change alone."""
        return bool(self.words)

    @property
    def worth_s(self) -> float | None:
        """Seconds of the step that it saves by all that is known; ``None``: not predicted."""
        if self.saving_s is not None or self.prediction is None:
            return self.saving_s
        return self.prediction.expected_s


class MemoryPoint(Record, kw_only=True):
    """One way to run the step: how long it takes, and the most memory that it takes meanwhile.

    ``fix`` is empty for the program as it is. ``budget`` is the share of activations that is kept,
    ``None`` where nothing is compiled. ``step_s`` follows from the ratio to the program as it is.
    ``price`` is its time over the reference's, with an interval that holds both ratios';
    ``saved_bytes`` is what it takes less than the reference (negative: more). ``on_front``: no
    other point takes as little of both, and less of one.
    """

    fix: str
    budget: float | None
    step_s: float
    memory_bytes: int
    price: Ratio
    saved_bytes: int
    on_front: bool


class MemoryCurve(Record, kw_only=True):
    """Peak memory of a step against its time, over settings of the partitioner's memory budget.

    ``reference`` is the fix that time and memory are compared with: ``compile``, or empty for the
    program as it is where that was not measured. Points: the most memory first.
    """

    reference: str
    points: list[MemoryPoint]


class Untried(Record, kw_only=True):
    """What a search would try of itself on a program that was diagnosed and not searched.

    ``fixes`` are names; ``time_s``: about how long that takes (``None``: unknown).
    """

    fixes: list[str] = []
    time_s: float | None = None


class FixSummary(Record, kw_only=True):
    """The outcome of a search for fixes (``gobrrr fix``).

    ``best`` names the fastest verified set, ``snippet`` is that set as code, ``ruled_out`` gives
    the reason for each fix that was not considered, ``not_tried`` for each that was and has no
    trial, ``null`` what no change at all measured. ``diagnosis_s`` and ``trials_s``: how long both
    took, of which ``budget_s`` was for trials; ``enough_s``: about what they would have needed
    where that was too little (``None``: it was not, or unknown).
    """

    best: list[str] = []
    verification: Verification | None = None
    snippet: str = ""
    ruled_out: dict[str, str] = {}
    not_tried: dict[str, str] = {}
    null: Ratio | None = None
    notices: list[str] = []
    memory_curve: MemoryCurve | None = None
    diagnosis_s: float | None = None
    trials_s: float | None = None
    budget_s: float | None = None
    enough_s: float | None = None
