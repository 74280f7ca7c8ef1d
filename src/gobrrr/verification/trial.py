"""What came of trying fixes: plain data, whatever happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gobrrr.measure.summary import Interval

FASTER, SAME, SLOWER = "faster", "same", "slower"
ELIMINATED_WORK, FAILED, INCOMPARABLE = "eliminated_work", "failed", "incomparable"
VERDICTS = (FASTER, SAME, SLOWER, ELIMINATED_WORK, FAILED, INCOMPARABLE)


@dataclass(frozen=True)
class Trial:
    """One set of fixes, tried.

    Attributes:
        fixes: their names; empty for the null trial.
        verdict: one of ``VERDICTS``.
        reason: one sentence that says why the verdict is what it is.
        speedup: before / after with its 95 % interval; ``None`` if nothing was timed.
        before_s: median seconds per step as it was; ``None`` if not timed.
        after_s: median seconds per step with the fixes.
        first_call_s: seconds of the first step with the fixes, what they set up included.
        compile_s: seconds that the first steps took beyond later ones, above what the unchanged
            program's first steps took beyond its own.
        break_even_steps: steps after which ``compile_s`` is won back; ``None`` if never or unknown.
        peak_memory_bytes: the most memory held with the fixes; ``None`` if unknown.
        step_memory_bytes: the most that tensors made within a step take at once with the fixes
            (``verification.memory``); ``None`` if not measured.
        step_memory_before_bytes: the same as it was.
        numerics: what was compared and what came out; ``None`` if it did not get that far.
        notices: sentences on what limits the trial.
    """

    fixes: tuple[str, ...]
    verdict: str
    reason: str
    speedup: Interval | None = None
    before_s: float | None = None
    after_s: float | None = None
    first_call_s: float | None = None
    compile_s: float | None = None
    break_even_steps: float | None = None
    peak_memory_bytes: int | None = None
    step_memory_bytes: int | None = None
    step_memory_before_bytes: int | None = None
    numerics: Mapping[str, Any] | None = None
    notices: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"{self.verdict!r} is no verdict; they are {', '.join(VERDICTS)}")

    @property
    def won(self) -> bool:
        """Whether the fixes count as an improvement."""
        return self.verdict == FASTER

    def as_record(self) -> dict[str, Any]:
        """The fields of ``diagnosis.schema.Verification``, as plain values."""
        record = asdict(self)
        del record["fixes"]
        record["speedup"] = self.speedup._asdict() if self.speedup is not None else None
        record["notices"] = list(self.notices)
        record["numerics"] = dict(self.numerics) if self.numerics is not None else None
        return record

    def as_message(self) -> dict[str, Any]:
        """All of it as plain values, for another process."""
        return {"fixes": list(self.fixes), **self.as_record()}


def trial_from_message(message: Mapping[str, Any]) -> Trial:
    """The inverse of ``as_message``. Raises KeyError, TypeError or ValueError if it is none."""
    fields = dict(message)
    ratio = fields.pop("speedup")
    return Trial(
        fixes=tuple(fields.pop("fixes")),
        speedup=None if ratio is None else Interval(**ratio),
        notices=tuple(fields.pop("notices")),
        **fields,
    )


def failed(fixes: tuple[str, ...], reason: str, **known: Any) -> Trial:
    """A trial that did not work out, and why."""
    return Trial(fixes, FAILED, reason, **known)


def describe(error: BaseException) -> str:
    """An exception as part of a reason: its type and the first line of what it says."""
    first = str(error).strip().splitlines()[:1]
    text = type(error).__name__ + (f": {first[0][:300]}" if first else "")
    if isinstance(error, MemoryError) or "allocate memory" in text or "out of memory" in text:
        return f"ran out of memory ({text})"
    return text
