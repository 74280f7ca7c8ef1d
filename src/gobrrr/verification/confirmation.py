"""A win is measured once more, apart from the trial that it won, before it is told.

A search looks at many trials and keeps the fastest, so that it keeps a lucky one too; and a
process in which a program has run many times before is not the one that its user will start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from gobrrr.diagnosis.fix_schema import Ratio, Verification
from gobrrr.fixes.fix import Fix
from gobrrr.timeline.quantities import multiple_range
from gobrrr.verification.alternation import Alternated
from gobrrr.verification.processes import ChildFailed
from gobrrr.verification.timing import Null, judge
from gobrrr.verification.trial import break_even, failed, ratio_of

# Pairs of fresh processes: where memory lies and which code is warm differs between them.
PAIRS = 2


def timed_anew(
    fixes: Sequence[Fix], null: Null, alternate: Callable[[int], Alternated]
) -> Verification:
    """Time alone, of fresh processes with and without the fixes; what they compute is known.

    ``alternate`` runs so many pairs of processes. One that does not work out is a failed trial.
    """
    names = tuple(fix.name for fix in fixes)
    try:
        got = alternate(PAIRS)
    except ChildFailed as failure:
        return failed(names, str(failure))
    timed, ratio = got.measured.timed, got.measured.ratio
    verdict, reason = judge(
        timed, null, None, ratio, repeats=True, processes=got.measured.processes
    )
    return Verification(
        fixes=list(names), verdict=verdict, reason=reason, speedup=ratio_of(ratio),
        counts_above=null.bar()[1], before_s=timed.before_s, after_s=timed.after_s,
    )  # fmt: skip


def confirmed(trial: Verification, again: Verification, where: str) -> Verification:
    """The trial as it may be told, after it was timed ``again``.

    Where both say faster, the more cautious of the two is told, with an interval that holds both.
    Otherwise the second verdict stands, whatever the first was.
    """
    first = _span(trial.speedup)
    if again.won and again.speedup is not None and trial.speedup is not None:
        cautious = trial if trial.speedup.median <= again.speedup.median else again
        speedup = Ratio(
            median=min(trial.speedup.median, again.speedup.median),
            low=min(trial.speedup.low, again.speedup.low),
            high=max(trial.speedup.high, again.speedup.high),
        )
        notice = f"measured again {where}: {_span(again.speedup)}, in the search {first}"
        return replace(
            trial, speedup=speedup, before_s=cautious.before_s, after_s=cautious.after_s,
            break_even_steps=_break_even(trial.compile_s, cautious),
            notices=[*trial.notices, notice],
        )  # fmt: skip
    return replace(
        trial, verdict=again.verdict, speedup=again.speedup, counts_above=again.counts_above,
        before_s=again.before_s, after_s=again.after_s,
        numerics=again.numerics or trial.numerics,
        reason=f"measured again {where}: {again.reason}; in the search {first}",
        break_even_steps=None,
    )  # fmt: skip


def _break_even(compile_s: float | None, told: Verification) -> float | None:
    if compile_s is None or told.before_s is None or told.after_s is None:
        return None
    return break_even(compile_s, told.before_s, told.after_s)


def _span(ratio: Ratio | None) -> str:
    return "nothing was timed" if ratio is None else multiple_range(ratio)
