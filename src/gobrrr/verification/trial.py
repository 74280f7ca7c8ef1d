"""What came of trying fixes, as the diagnosis saves it: put together here, whatever was tried."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gobrrr.diagnosis.fix_schema import FAILED, FASTER, NOT_APPLIED, Ratio, Verification
from gobrrr.fixes.fix import Fix
from gobrrr.measure.summary import Interval
from gobrrr.timeline.quantities import time_text
from gobrrr.verification.numerics import Numerics
from gobrrr.verification.timing import Null, Timed, beats, judge


@dataclass(frozen=True, slots=True)
class Measured:
    """What two sides gave that took turns.

    Attributes:
        timed: their turns.
        ratio: before / after; where more is known of it than the turns say, that.
        started_s: seconds of each side's first steps, what fixes set up included.
        first_call_s: seconds of the first step with the fixes; ``None`` if unknown.
        peak_bytes: the most memory held with the fixes; ``None`` if unknown.
        step_memory_bytes: the most that tensors made within a step take at once, before and after.
        processes: pairs of fresh processes, whose medians the ratio's interval covers; 0 where both
            sides took turns in one.
        modules: outermost modules of a script that the fixes came upon; ``None``: not counted.
    """

    timed: Timed
    ratio: Interval
    started_s: tuple[float, float]
    first_call_s: float | None = None
    peak_bytes: int | None = None
    step_memory_bytes: tuple[int | None, int | None] = (None, None)
    processes: int = 0
    modules: int | None = None


def trial_of(
    fixes: Sequence[Fix],
    measured: Measured,
    numerics: Numerics,
    null: Null,
    speed_of_light_s: float | None,
    notices: Sequence[str] = (),
    idle: Sequence[str] = (),
) -> Verification:
    """The verdict on what was timed; what the change computes decides before its time.

    ``idle`` are fixes that changed nothing: then the times differ by chance, and are not told.
    """
    timed, names = measured.timed, [fix.name for fix in fixes]
    drops = any(fix.effect.drops for fix in fixes)
    verdict, reason = judge(
        timed, null, speed_of_light_s, measured.ratio, processes=measured.processes, drops=drops
    )
    if not numerics.passed:
        verdict, reason = numerics.verdict, numerics.reason
    elif not drops and speed_of_light_s is not None and beats(timed, speed_of_light_s):
        notices = (
            *notices,
            f"{time_text(timed.after_s)} per step is below the {time_text(speed_of_light_s)} that "
            "the step's work takes at the ceilings measured here, and the same ops ran: a ceiling "
            "is in doubt, not the change",
        )
    if idle and verdict != FAILED:
        return Verification(
            fixes=names, verdict=NOT_APPLIED, numerics=numerics.as_record(),
            reason=f"{' and '.join(idle)} had no effect: no place was found here to change",
            modules=measured.modules, notices=list(notices),
        )  # fmt: skip
    compile_s = max(0.0, measured.started_s[1] - measured.started_s[0])
    pays = break_even(compile_s, timed.before_s, timed.after_s) if verdict == FASTER else None
    before_bytes, after_bytes = measured.step_memory_bytes
    return Verification(
        fixes=names, verdict=verdict, reason=reason, speedup=ratio_of(measured.ratio),
        counts_above=null.bar(len(timed.before))[1], before_s=timed.before_s,
        after_s=timed.after_s, first_call_s=measured.first_call_s,
        compile_s=compile_s,
        break_even_steps=pays,
        peak_memory_bytes=measured.peak_bytes, step_memory_before_bytes=before_bytes,
        step_memory_bytes=after_bytes, modules=measured.modules, numerics=numerics.as_record(),
        notices=list(notices),
    )  # fmt: skip


class Changes:
    """What fixes change in this process from now on, where they keep count of it."""

    def __init__(self, fixes: Sequence[Fix]) -> None:
        self._before = [
            (fix.name, fix.changes_made, fix.changes_made())
            for fix in fixes
            if fix.changes_made is not None
        ]

    def idle(self) -> tuple[str, ...]:
        """Names of the fixes that have changed nothing so far."""
        return tuple(name for name, made, before in self._before if made() <= before)


def break_even(compile_s: float, before_s: float, after_s: float) -> int | None:
    """Steps after which setting up has paid; ``None`` if each takes as long as before.

    A ratio of several processes can be above 1 where these times, of one of them, are not.
    """
    gain_s = before_s - after_s
    return math.ceil(compile_s / gain_s) if gain_s > 0 else None


def ratio_of(interval: Interval) -> Ratio:
    """As the diagnosis saves it."""
    return Ratio(median=interval.median, low=interval.low, high=interval.high)


def failed(fixes: Sequence[str], reason: str, **known: Any) -> Verification:
    """A trial that did not work out, and why."""
    return Verification(fixes=list(fixes), verdict=FAILED, reason=reason, **known)


def describe(error: BaseException) -> str:
    """An exception as part of a reason: its type and the first line of what it says."""
    first = str(error).strip().splitlines()[:1]
    text = type(error).__name__ + (f": {first[0][:300]}" if first else "")
    if isinstance(error, MemoryError) or "allocate memory" in text or "out of memory" in text:
        return f"ran out of memory ({text})"
    return text
