"""Before and after in turns, and what their ratio is worth beside that of no change at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from gobrrr.diagnosis.fix_schema import ELIMINATED_WORK, FASTER, INCOMPARABLE, SAME, SLOWER
from gobrrr.measure.clock import Clock, SystemClock
from gobrrr.measure.noise import FEWEST_PAIRS, NULL_WIDTH, is_apart, is_quiet, reach_of
from gobrrr.measure.summary import Interval, ratio_interval
from gobrrr.timeline.quantities import multiple_range, time_text

# Faster than the speed of light by more than the ceilings are uncertain by.
LIGHT_TOLERANCE = 0.05
FEWEST_ROUNDS, MOST_ROUNDS, ROUNDS_BEFORE_A_LOOK = 8, 2000, 6
# Seconds that one side runs before it is the other's turn: long beside the clock and a switch of
# settings, short beside what else happens on a machine.
TURN_S = 0.02
# Times the budget that a change is timed for which looks like one and is not proved yet.
MOST_EXTENSION = 4
# Seconds beyond which no budget is extended.
MOST_EXTENDED_S = 20.0
# Whether a ratio of so many pairs has to be measured on.
Undecided = Callable[[Interval, int], bool]


def extended_s(budget_s: float) -> float:
    """Seconds that an undecided ratio is measured for at most."""
    return max(budget_s, min(MOST_EXTENSION * budget_s, MOST_EXTENDED_S))


def never(ratio: Interval, pairs: int) -> bool:
    """No ratio is measured on."""
    return False


class EndOfSteps(Exception):  # noqa: N818 - an ordinary end
    """A side has no more steps to run."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two that take turns.

    Attributes:
        step: one step; what it returns is kept until the next has run.
        enter: called before its turn, outside the time (settings are put in place).
        leave: called after its turn.
    """

    step: Callable[[], object]
    enter: Callable[[], object] = lambda: None
    leave: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True)
class Timed:
    """Two series of turns, pairwise next to each other; seconds per step."""

    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def ratio(self) -> Interval:
        """Before / after: median over pairs with its 95 % bootstrap interval."""
        return ratio_interval(self.before, self.after)

    @property
    def before_s(self) -> float:
        """Median seconds per step."""
        return median(self.before)

    @property
    def after_s(self) -> float:
        """Median seconds per step."""
        return median(self.after)


@dataclass(frozen=True, slots=True)
class Null:
    """The ratio that no change gives here: what a fix has to exceed.

    Attributes:
        ratio: with its interval.
        quiet: whether it is near enough to 1 and narrow enough to tell anything.
        before_s: median seconds per step.
        cause: why its processes differ, as a clause; empty if that is unknown.
    """

    ratio: Interval
    quiet: bool
    before_s: float
    cause: str = ""

    @property
    def sentence(self) -> str:
        """What it says about the machine."""
        r = self.ratio
        span = f"the program timed against itself: {multiple_range(r, 3)}"
        why = f", {self.cause}" if self.cause else ""
        return span if self.quiet else f"too noisy to tell: {span}{why}"

    def bar(self, pairs: int = FEWEST_PAIRS) -> tuple[float, float]:
        """What the whole interval of a slower or faster change lies below or above."""
        return reach_of(self.ratio, pairs)


def null_of(timed: Timed, ratio: Interval | None = None) -> Null:
    """Judge a null trial's turns; ``ratio`` stands in for theirs where more is known of it."""
    ratio = ratio or timed.ratio
    return Null(ratio, is_quiet(ratio), timed.before_s)


def take_turns(
    before: Side,
    after: Side,
    *,
    budget_s: float,
    enough: Callable[[Interval], bool],
    clock: Clock | None = None,
    sync: Callable[[], object] = lambda: None,
    turn_s: float = TURN_S,
    undecided: Undecided = never,
) -> Timed:
    """Both sides warm; A B, then B A, and so on, until ``enough(ratio)`` or the budget is spent.

    A ratio that is ``undecided`` then is measured on, for ``extended_s(budget_s)`` in all. Who
    goes first alternates, so that what the first of a pair leaves behind favours neither. A turn is
    as many steps as fill ``turn_s`` on that side. Two pairs are taken whatever the budget.
    """
    clock = clock or SystemClock()
    begun = clock.now_ns()
    one = _turn(before, 1, clock, sync), _turn(after, 1, clock, sync)
    calls = tuple(max(1, round(turn_s / seconds)) if seconds > 0 else 1 for seconds in one)
    return alternate(
        lambda: _turn(before, calls[0], clock, sync),
        lambda: _turn(after, calls[1], clock, sync),
        budget_s=budget_s - (clock.now_ns() - begun) * 1e-9,
        enough=enough,
        clock=clock,
        undecided=undecided,
    )


def alternate(
    before: Callable[[], float],
    after: Callable[[], float],
    *,
    budget_s: float,
    enough: Callable[[Interval], bool],
    clock: Clock,
    undecided: Undecided = never,
) -> Timed:
    """Turns of two callables that return seconds per step; see ``take_turns``.

    A callable that raises EndOfSteps has no more: the whole pairs until then are the result.
    """
    begun = clock.now_ns()
    series: tuple[list[float], list[float]] = [], []
    sides = before, after
    most_s, extended = budget_s, False
    while len(series[0]) < MOST_ROUNDS:
        order = (0, 1) if len(series[0]) % 2 == 0 else (1, 0)
        pair = [0.0, 0.0]
        try:
            for which in order:
                pair[which] = sides[which]()
        except EndOfSteps:
            break
        for which in order:
            series[which].append(pair[which])
        rounds = len(series[0])
        spent_s = (clock.now_ns() - begun) * 1e-9
        if rounds < FEWEST_ROUNDS and spent_s + spent_s / rounds < budget_s:
            continue
        ends_s = spent_s + spent_s / rounds
        if rounds >= 2 and ends_s >= most_s:
            if extended or not undecided(ratio_interval(*series), rounds):
                break
            extended, most_s = True, extended_s(budget_s)
        # Seldom: the more often one looks, the sooner chance looks like a change.
        if rounds % ROUNDS_BEFORE_A_LOOK == 0 and rounds >= FEWEST_ROUNDS:
            ratio = ratio_interval(*series)
            if enough(ratio) or (extended and not undecided(ratio, rounds)):
                break
    return Timed(tuple(series[0]), tuple(series[1]))


def _turn(side: Side, calls: int, clock: Clock, sync: Callable[[], object]) -> float:
    """Seconds per step, at least a nanosecond."""
    side.enter()
    try:
        sync()
        start = clock.now_ns()
        kept = None
        for _ in range(calls):
            kept = side.step()
        sync()
        length = clock.now_ns() - start
        # Alive until the clock has stopped: freeing it belongs to nobody's step.
        del kept
    finally:
        side.leave()
    return max(length, 1) * 1e-9 / calls


def clear_of(null: Null) -> Callable[[Interval], bool]:
    """Whether a ratio has been measured well enough to say on which side of the null it lies."""

    def enough(ratio: Interval) -> bool:
        if ratio.high - ratio.low >= NULL_WIDTH * max(ratio.median, 1.0):
            return False
        low, high = null.bar()
        # Or near 1 as a whole: it will not become clearer.
        return ratio.low > high or ratio.high < low or is_quiet(ratio)

    return enough


def undecided_by(null: Null) -> Undecided:
    """Whether a ratio lies beyond the null, but its interval does not or has too few pairs."""

    def undecided(ratio: Interval, pairs: int) -> bool:
        low, high = null.bar()
        if low <= ratio.median <= high:
            return False
        return pairs < FEWEST_PAIRS or (ratio.low <= high and ratio.high >= low)

    return undecided


def hidden_by(null: Null) -> Undecided:
    """Whether a ratio of so many pairs does not clear what this null asks of it."""

    def hidden(ratio: Interval, pairs: int) -> bool:
        low, high = null.bar(pairs)
        return ratio.low <= high and ratio.high >= low

    return hidden


def beats(timed: Timed, light_s: float) -> bool:
    """Whether the changed step is faster than the speed of light."""
    return timed.after_s < light_s * (1 - LIGHT_TOLERANCE)


def judge(
    timed: Timed,
    null: Null,
    speed_of_light_s: float | None = None,
    ratio: Interval | None = None,
    *,
    repeats: bool = False,
    processes: int = 0,
    drops: bool = True,
) -> tuple[str, str]:
    """(verdict, reason) of a timed pair whose numerics have passed.

    ``repeats``: a trial that was proved is measured again, for which few pairs are enough.
    ``processes``: of so many pairs of fresh processes the ratio's interval covers the medians.
    ``drops``: whether the change could have left work out (``fixes.fix.Effect``).

    Faster means that the whole interval lies above what ``measure.noise.reach_of`` gives for the
    null: its own interval where it is quiet, and more where it is noisy; a smaller change cannot be
    told. What processes differ by is drawn anew with each pair of them: where ``FEWEST_PAIRS``
    agree on a side it is no chance, whatever the null (six by chance: one time in 32). A step
    shorter than the unavoidable work at the ceilings has lost some of that work, where the change
    could lose any; otherwise the ceilings are too low.
    """
    ratio = ratio or timed.ratio
    span = multiple_range(ratio)
    light = speed_of_light_s
    if light is not None and drops and beats(timed, light):
        return ELIMINATED_WORK, (
            f"{time_text(timed.after_s)} per step is below the {time_text(light)} that the step's "
            "work takes at this machine's ceilings: work was eliminated, not sped up"
        )
    if processes >= FEWEST_PAIRS and is_apart(ratio.low, ratio.high):
        verdict = FASTER if ratio.low > 1.0 else SLOWER
        return verdict, f"{span}; {verdict} in each of {processes} pairs of fresh processes"
    low, high = null.bar(FEWEST_PAIRS if repeats else len(timed.before))
    if ratio.low > high:
        return FASTER, f"{span}; {null.sentence}"
    if ratio.high < low:
        return SLOWER, f"{span}; {null.sentence}"
    if not null.quiet:
        return INCOMPARABLE, (
            f"{null.sentence}; with the change {span}, and only above {high:.2f}x it counts"
        )
    return SAME, f"{span} is within the noise ({null.sentence})"
