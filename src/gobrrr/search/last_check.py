"""The last step of a search: what is to be told as the best set is measured once more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gobrrr.diagnosis.schema import Verification
from gobrrr.search.found import Found

# Sets that are measured again, the fastest first, until one holds.
MOST_CHECKED = 3
# A set of fixes takes the place of another if it is at least this much faster.
LEAST_GAIN = 1.01


def check_best(
    found: Found,
    measure_again: Callable[[Verification], Verification],
    allowed: Callable[[Verification], bool],
) -> None:
    """Measure the best set again; where it does not hold, the next best takes its place.

    ``measure_again`` gives a won trial as it may be told (``verification.confirmation``);
    ``allowed`` tells which won trials may be the best set.
    """
    held: list[Verification] = []
    for _ in range(MOST_CHECKED):
        best = found.best
        if best is None or any(best is one for one in held):
            return
        told = measure_again(best)
        _put(found, best, told)
        if told.won:
            held.append(told)
        else:
            found.notices.append(_lost(best, told))
        found.best = _fastest(found, held, allowed)
    # What was not measured again is not told.
    found.best = max(held, key=_median, default=None)


def _fastest(
    found: Found, held: list[Verification], allowed: Callable[[Verification], bool]
) -> Verification | None:
    """The fastest that is still won; what held is kept where another is hardly faster."""
    won = [t.trial for t in found.tried if t.trial is not None and t.trial.won]
    won += [trial for trial in found.combinations if trial.won]
    fastest = max(filter(allowed, won), key=_median, default=None)
    kept = max(held, key=_median, default=None)
    if kept is None or fastest is None:
        return fastest
    return fastest if _median(fastest) > LEAST_GAIN * _median(kept) else kept


def _put(found: Found, old: Verification, new: Verification) -> None:
    found.tried = [replace(t, trial=new) if t.trial is old else t for t in found.tried]
    found.combinations = [new if trial is old else trial for trial in found.combinations]


def _lost(best: Verification, told: Verification) -> str:
    return f"{' + '.join(best.fixes)} was faster, but not when {told.reason}."


def _median(trial: Verification) -> float:
    return 0.0 if trial.speedup is None else trial.speedup.median
