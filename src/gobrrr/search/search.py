"""Search for fixes: predict, rank, try each, combine the winners, diagnose again, keep the best.

What a program is and how it is run is behind ``Bench``; this file knows neither torch nor
processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gobrrr.diagnosis.facts import Facts
from gobrrr.diagnosis.schema import Diagnosis, Verification
from gobrrr.fixes.fix import CODE, FIRST_STEP, Fix, Prospect
from gobrrr.fixes.light import speed_of_light_with
from gobrrr.fixes.prospects import consider_all
from gobrrr.measure.progress import Progress
from gobrrr.search.found import Found, Tried, write_findings
from gobrrr.search.last_check import LEAST_GAIN, check_best
from gobrrr.search.options import Options, select
from gobrrr.timeline.errors import GobrrrError
from gobrrr.timeline.quantities import multiple, whole_seconds
from gobrrr.verification.programs import START_LIMIT_S
from gobrrr.verification.timing import Null

# Rounds of adding one more fix to the best set.
MOST_TOGETHER = 5
NULL_TRIES = 2
_NULL_PHASES = (
    "timing the program against itself, to know the noise",
    "timing it against itself again, since it was noisy",
)
# Seconds of measuring that one trial gets at most, whatever the number of trials.
MOST_TRIAL_S, MOST_NULL_S = 20.0, 40.0
# Shares of the budget: for all null trials, for trying each fix alone.
NULL_SHARE, ALONE_SHARE = 0.25, 0.5
# A trial that has begun may take this long whatever is left of the budget; then it is ended.
LEAST_LIMIT_S = 30.0
# Seconds of starting processes, beside those of a trial, for the measurement that ends a search.
AGAIN_S = 10.0
# Share of the step that a fix without a compiler has to save to be tried before those with one.
WORTH_FIRST = 0.02
# Variants of a fix are not tried once it is clear that it makes the program this much slower.
HOPELESS = 0.85


class Bench(Protocol):
    """A program that can be diagnosed and on which fixes can be tried."""

    def diagnose(self, fixes: Sequence[Fix], progress: Progress) -> tuple[Diagnosis, Facts]:
        """Diagnose the program with these fixes applied; raises GobrrrError if it does not run."""
        ...

    def measure_null(self, budget_s: float) -> Null:
        """The program against itself; raises GobrrrError if it does not run."""
        ...

    def verify(self, fixes: Sequence[Fix], null: Null, light_s: float | None,
               budget_s: float, limit_s: float) -> Verification:  # fmt: skip
        """Try these fixes together, ``budget_s`` of measuring.

        Where it can be ended, it is after ``limit_s`` in all.
        """
        ...

    def measure_again(self, fixes: Sequence[Fix], trial: Verification, null: Null,
                      budget_s: float, limit_s: float) -> Verification:  # fmt: skip
        """A won trial of these fixes as it may be told, once their time was measured anew."""
        ...

    def can_apply(self, fix: Fix) -> str:
        """Empty, or why this fix cannot be applied to this kind of target."""
        ...

    @property
    def least_trial_s(self) -> float:
        """Seconds of measuring without which a trial says nothing."""
        ...

    @property
    def notices(self) -> Sequence[str]:
        """Sentences on what holds for each trial, once the null has been measured."""
        ...

    @property
    def inputs(self) -> Any:
        """What a model of this process is tried on; empty for a program in its own."""
        ...

    def close(self) -> None:
        """End what lives on between trials."""
        ...


def search(
    bench: Bench,
    fixes: Sequence[Fix],
    options: Options,
    progress: Progress,
    clock: Callable[[], float] = time.monotonic,
) -> Found:
    """Diagnose, predict, try, combine. What a fix does wrong is its trial's failure."""
    begun = clock()
    asked = select(fixes, options)
    refused = [(fix, why) for fix in asked if (why := options.refusal(fix))]
    chosen = tuple(fix for fix in asked if not options.refusal(fix))
    budget = whole_seconds(options.budget_s)
    progress(f"first the diagnosis, on top of the budget of {budget} for trials", 0, 0)
    diagnosis, facts = bench.diagnose((), progress)
    found = Found(diagnosis, facts, ruled_out=refused, budget_s=options.budget_s)
    diagnosed = clock()
    found.diagnosis_s = diagnosed - begun
    prospects = consider_all(chosen, facts, options.only, found.ruled_out)
    if not any(_is_tried(bench, *pair) for pair in prospects):
        found.tried = [_untried(bench, fix, prospect) for fix, prospect in prospects]
        write_findings(found)
        return found
    run = _Run(bench, options, found, progress, clock)
    run.measure_null()
    found.notices += bench.notices
    run.try_each(prospects)
    run.combine(chosen)
    run.check_best(chosen)
    found.trials_s = clock() - diagnosed
    write_findings(found)
    return found


def usual_time_s(count: int, least_trial_s: float, budget_s: float) -> float:
    """About how long a search of so many fixes takes, its first diagnosis aside.

    Each alone, the program against itself, and the best set once more; sets of several come on top
    where fixes help, within the budget.
    """
    trial_s = min(max(budget_s * ALONE_SHARE / max(count, 1), least_trial_s), MOST_TRIAL_S)
    return min((count + 2) * trial_s, budget_s)


def _bases_first(prospects: list[tuple[Fix, Prospect]]) -> list[tuple[Fix, Prospect]]:
    """The same order, but that no variant comes before what it is a variant of."""
    ordered: list[tuple[Fix, Prospect]] = []
    waiting: list[tuple[Fix, Prospect]] = []
    names = {fix.name for fix, _ in prospects}
    done: set[str] = set()
    for pair in prospects:
        if pair[0].variant_of in names - done:
            waiting.append(pair)
            continue
        ordered.append(pair)
        done.add(pair[0].name)
        ordered += [other for other in waiting if other[0].variant_of == pair[0].name]
        waiting = [other for other in waiting if other[0].variant_of != pair[0].name]
    return ordered + waiting


def _quick_first(
    prospects: list[tuple[Fix, Prospect]], step_s: float, options: Options
) -> list[tuple[Fix, Prospect]]:
    """Fixes that take seconds to try before those that wait for a compiler, if they promise some.

    Otherwise a small budget goes to one compiler, and what everybody can have is never tried. Of
    each group those come last that are told apart and that the best set may not hold.
    """

    def late(pair: tuple[Fix, Prospect]) -> tuple[bool, bool]:
        fix, prospect = pair
        waits = FIRST_STEP in fix.may_change or prospect.expected_s < WORTH_FIRST * step_s
        return waits, not options.allows(fix)

    return sorted(prospects, key=late)


def _is_tried(bench: Bench, fix: Fix, prospect: Prospect | None = None) -> bool:
    by_hand = prospect is not None and prospect.by_hand
    return fix.can_be_applied and not by_hand and not bench.can_apply(fix)


def _untried(bench: Bench, fix: Fix, prospect: Prospect) -> Tried:
    reason = "a change that only you can make"
    if fix.can_be_applied:
        reason = bench.can_apply(fix) or prospect.by_hand
    return Tried(fix, prospect, reason=reason)


@dataclass
class _Run:
    bench: Bench
    options: Options
    found: Found
    progress: Progress
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._begun = self.clock()
        self._trial_s = self.bench.least_trial_s

    def _left_s(self) -> float:
        return self.options.budget_s - (self.clock() - self._begun)

    def _left(self) -> str:
        return f"{whole_seconds(max(self._left_s(), 0.0))} of the budget left"

    def measure_null(self) -> None:
        """The null trial, again if the machine was not quiet enough."""
        # It ends as soon as it is good enough.
        budget_s = self.options.budget_s * NULL_SHARE / NULL_TRIES
        budget_s = min(max(budget_s, self.bench.least_trial_s), MOST_NULL_S)
        for attempt in range(NULL_TRIES):
            spent_s = self.options.budget_s - self._left_s()
            if attempt and spent_s > NULL_SHARE * self.options.budget_s:
                break
            self.progress(_NULL_PHASES[min(attempt, 1)], 0, 0)
            null = self.bench.measure_null(budget_s)
            before = self.found.null
            if before is None or _width(null) < _width(before):
                self.found.null = null
            if null.quiet:
                self.found.null = null
                return
        assert self.found.null is not None
        self.found.notices.append(f"{_capital(self.found.null.sentence)}.")

    def try_each(self, prospects: list[tuple[Fix, Prospect]]) -> None:
        """Every fix alone: quick ones first, and by expected saving, in which order they stay."""
        null_s = self.options.budget_s - self._left_s()
        count = sum(_is_tried(self.bench, *pair) for pair in prospects)
        # The rest goes to combinations, and to compiling.
        share_s = self._left_s() * ALONE_SHARE / max(count, 1)
        self._trial_s = min(max(share_s, self.bench.least_trial_s), MOST_TRIAL_S)
        done, taken_s = 0, list[float]()
        shown = {fix.name: place for place, (fix, _) in enumerate(prospects)}
        step_s = self.found.facts.step_s
        for fix, prospect in _bases_first(_quick_first(prospects, step_s, self.options)):
            if not _is_tried(self.bench, fix, prospect):
                self.found.tried.append(_untried(self.bench, fix, prospect))
                continue
            hopeless = self._hopeless(fix)
            # One trial at least: a search that tries nothing has wasted its diagnosis.
            if hopeless or (self._left_s() <= 0 and done):
                reason = hopeless or _SPENT
                self.found.tried.append(Tried(fix, prospect, reason=reason))
                continue
            self.progress(f"trying {fix.name} ({done + 1} of {count}, {self._left()})", done, 0)
            done += 1
            trial_begun = self.clock()
            trial = self._verify((fix,))
            taken_s.append(self.clock() - trial_begun)
            if trial is None:
                # How long it would have gone on is unknown.
                taken_s.append(taken_s[-1])
                self.found.tried.append(Tried(fix, prospect, reason=_ENDED))
                continue
            self.found.tried.append(Tried(fix, prospect, trial))
            if self.options.allows(fix):
                self._keep_best(trial)
        self.found.tried.sort(key=lambda tried: shown[tried.fix.name])
        if any(tried.reason in (_SPENT, _ENDED) for tried in self.found.tried):
            self.found.enough_s = self._enough_s(count, null_s, sum(taken_s) / done)

    def _enough_s(self, count: int, null_s: float, trial_s: float) -> float:
        """About the budget in which so many trials end that take as long as those so far.

        Each takes what it needs beside measuring, and of that its share or less.
        """
        beside_s = max(trial_s - self._trial_s, 0.0)
        least_s = max(beside_s / ALONE_SHARE, beside_s + self.bench.least_trial_s)
        all_s = count * min(beside_s + MOST_TRIAL_S, least_s)
        return max(null_s + all_s, all_s / (1 - NULL_SHARE), 1.5 * self.options.budget_s)

    def _hopeless(self, fix: Fix) -> str:
        base = next((t for t in self.found.tried if t.fix.name == fix.variant_of), None)
        if base is None or base.trial is None:
            return ""
        ratio = base.trial.speedup
        if base.trial.verdict == "failed":
            return f"a variant of {base.fix.name}, which failed"
        if ratio is not None and ratio.high < HOPELESS and not fix.family:
            return f"a variant of {base.fix.name}, which is slower ({multiple(ratio.median)})"
        return ""

    def combine(self, fixes: Sequence[Fix]) -> None:
        """Add to the best set what still helps, as long as something does.

        The regime is another one once the first fix has done its work: the program is diagnosed
        with the best set applied, and fixes are ranked by what they would save then.
        """
        by_name = {fix.name: fix for fix in fixes}
        rejected: set[frozenset[str]] = set()
        for _ in range(MOST_TOGETHER):
            best = self.found.best
            if best is None or self._left_s() <= 0:
                return
            together = [by_name[name] for name in best.fixes]
            candidates = self._candidates(together, fixes)
            if not any(self._extends(best, together, fix, rejected) for fix in candidates):
                return

    def check_best(self, fixes: Sequence[Fix]) -> None:
        """The best set is measured once more, whatever is left of the budget."""
        by_name = {fix.name: fix for fix in fixes}

        def again(trial: Verification) -> Verification:
            assert self.found.null is not None
            self.progress(f"measuring {' + '.join(trial.fixes)} again", 0, 0)
            # Fresh processes load everything anew, which no earlier trial has timed.
            limit_s = max(self._left_s(), START_LIMIT_S)
            together = [by_name[name] for name in trial.fixes]
            budget_s = AGAIN_S + self._trial_s
            return self.bench.measure_again(together, trial, self.found.null, budget_s, limit_s)

        def allowed(trial: Verification) -> bool:
            return all(self.options.allows(by_name[name]) for name in trial.fixes)

        check_best(self.found, again, allowed)

    def _extends(
        self, best: Verification, together: list[Fix], fix: Fix, rejected: set[frozenset[str]]
    ) -> bool:
        key = frozenset((*best.fixes, fix.name))
        if key in rejected or self._left_s() <= 0:
            return False
        rejected.add(key)
        # What decides the code that runs takes the program as it is by then: what changes a
        # module's own parts finds none in an exported one.
        ordered = sorted((*together, fix), key=lambda one: CODE in one.claims)
        names = " + ".join(one.name for one in ordered)
        self.progress(f"trying {names} ({self._left()})", 0, 0)
        trial = self._verify(ordered)
        if trial is None:
            return False
        self.found.combinations.append(trial)
        return self._keep_best(trial)

    def _candidates(self, together: list[Fix], fixes: Sequence[Fix]) -> list[Fix]:
        """What could be added, the most promising first."""
        facts = self._facts_with(together)
        names = {fix.name for fix in together}
        allowed = [
            fix for fix in fixes
            if fix.name not in names and _is_tried(self.bench, fix) and self.options.allows(fix)
            and not any(fix.excludes(other) for other in together)
        ]  # fmt: skip
        worth: dict[str, float] = {}
        if facts is not None:
            asked = self.options.only
            found = consider_all(allowed, facts, asked)
            worth = {f.name: p.expected_s for f, p in found if not p.by_hand}
        won = {t.fix.name: t for t in self.found.tried if t.trial is not None and t.trial.won}
        lost = {
            t.fix.name for t in self.found.tried
            if t.trial is not None and t.trial.verdict in ("failed", "slower")
        }  # fmt: skip
        for name, tried in won.items():
            # What has won alone is worth a try whatever is predicted of it now.
            gained_s = 0.0
            if tried.trial is not None and tried.trial.before_s and tried.trial.after_s:
                gained_s = tried.trial.before_s - tried.trial.after_s
            worth[name] = max(worth.get(name, 0.0), 0.5 * gained_s)
        ranked = [
            fix for fix in allowed
            if worth.get(fix.name, 0.0) > 0 and lost.isdisjoint((fix.name, fix.variant_of))
        ]  # fmt: skip
        return sorted(ranked, key=lambda fix: -worth[fix.name])

    def _facts_with(self, together: list[Fix]) -> Facts | None:
        if self._left_s() < 2 * self._trial_s:
            return None
        try:
            self.found.after, facts = self.bench.diagnose(together, self.progress)
        except GobrrrError as error:
            self.found.notices.append(f"With the fixes applied no diagnosis was possible: {error}.")
            return None
        return facts

    def _verify(self, fixes: Sequence[Fix]) -> Verification | None:
        """The trial; ``None`` if the budget ended before it had a result."""
        assert self.found.null is not None
        light_s = speed_of_light_with(self.found.facts, fixes)
        limit_s = max(self._left_s(), LEAST_LIMIT_S)
        begun = self.clock()
        trial = self.bench.verify(fixes, self.found.null, light_s, self._trial_s, limit_s)
        if trial.verdict == "failed" and self.clock() - begun >= limit_s:
            return None
        return trial

    def _keep_best(self, trial: Verification) -> bool:
        if not trial.won or trial.speedup is None:
            return False
        best = self.found.best
        least = 0.0
        if best is not None and best.speedup is not None:
            least = LEAST_GAIN * best.speedup.median
        if trial.speedup.median < least:
            return False
        self.found.best = trial
        return True


_SPENT = "the budget was spent: give a larger --budget"
_ENDED = "it had no result when the budget was spent: give a larger --budget"


def _width(null: Null) -> float:
    return abs(null.ratio.median - 1.0) + null.ratio.high - null.ratio.low


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
