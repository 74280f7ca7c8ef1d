"""Before and after in turns, and what their ratio is worth beside that of no change at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from gobrrr.diagnosis.fix_schema import ELIMINATED_WORK, FASTER, INCOMPARABLE, SAME, SLOWER
from gobrrr.measure.clock import Clock, SystemClock
from gobrrr.measure.summary import Interval, ratio_interval
from gobrrr.timeline.quantities import multiple_range, time_text

# A null trial is good if its median is this near 1 and its interval this narrow.
NULL_MEDIAN, NULL_WIDTH = 0.02, 0.05
# How many times farther than a noisy null reaches a change must lie to be believed all the same:
# attention that runs 2.5 times as fast is, on a machine whose own steps differ by 7 %.
NOISY_REACH = 3
# A ratio nearer to 1 than this is no change: what is left of a drift can be as large.
LEAST_CHANGE = 0.01
# Faster than the speed of light by more than the ceilings are uncertain by.
LIGHT_TOLERANCE = 0.05
FEWEST_ROUNDS, MOST_ROUNDS, ROUNDS_BEFORE_A_LOOK = 8, 2000, 6
# Seconds that one side runs before it is the other's turn: long beside the clock and a switch of
# settings, short beside what else happens on a machine.
TURN_S = 0.02


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
    """

    ratio: Interval
    quiet: bool
    before_s: float

    @property
    def sentence(self) -> str:
        """What it says about the machine."""
        r = self.ratio
        span = f"the program against itself: {multiple_range(r, 3)}"
        return span if self.quiet else f"too noisy to tell: {span}"


def null_of(timed: Timed, ratio: Interval | None = None) -> Null:
    """Judge a null trial's turns; ``ratio`` stands in for theirs where more is known of it."""
    ratio = ratio or timed.ratio
    return Null(ratio, is_quiet(ratio), timed.before_s)


def is_quiet(ratio: Interval) -> bool:
    """Whether a null's ratio is near 1 and narrow."""
    return abs(ratio.median - 1.0) <= NULL_MEDIAN and ratio.high - ratio.low < NULL_WIDTH


def take_turns(
    before: Side,
    after: Side,
    *,
    budget_s: float,
    enough: Callable[[Interval], bool],
    clock: Clock | None = None,
    sync: Callable[[], object] = lambda: None,
    turn_s: float = TURN_S,
) -> Timed:
    """Both sides warm; A B, then B A, and so on, until ``enough(ratio)`` or the budget is spent.

    Who goes first alternates, so that what the first of a pair leaves behind favours neither. A
    turn is as many steps as fill ``turn_s`` on that side. Two pairs are taken whatever the budget.
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
    )


def alternate(
    before: Callable[[], float],
    after: Callable[[], float],
    *,
    budget_s: float,
    enough: Callable[[Interval], bool],
    clock: Clock,
) -> Timed:
    """Turns of two callables that return seconds per step; see ``take_turns``.

    A callable that raises EndOfSteps has no more: the whole pairs until then are the result.
    """
    begun = clock.now_ns()
    series: tuple[list[float], list[float]] = [], []
    sides = before, after
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
        if rounds >= 2 and spent_s + spent_s / rounds >= budget_s:
            break
        look = rounds % ROUNDS_BEFORE_A_LOOK == 0 and rounds >= FEWEST_ROUNDS
        if look and enough(ratio_interval(series[0], series[1])):
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
        return ratio.low > null.ratio.high or ratio.high < null.ratio.low or (
            # Inside the null's own span as a whole: it will not become clearer.
            is_quiet(ratio)
        )  # fmt: skip

    return enough


def judge(
    timed: Timed,
    null: Null,
    speed_of_light_s: float | None = None,
    ratio: Interval | None = None,
) -> tuple[str, str]:
    """(verdict, reason) of a timed pair whose numerics have passed.

    Faster means that the whole interval lies above the null's, and above 1 by ``LEAST_CHANGE``.
    Where the null itself is noisy, it has to lie beyond ``NOISY_REACH`` times the null's reach; a
    smaller change cannot be told. A step shorter than the unavoidable work at the ceilings has lost
    some of that work.
    """
    ratio = ratio or timed.ratio
    span = multiple_range(ratio)
    light = speed_of_light_s
    if light is not None and timed.after_s < light * (1 - LIGHT_TOLERANCE):
        return ELIMINATED_WORK, (
            f"{time_text(timed.after_s)} per step is below the {time_text(light)} that the step's "
            "work takes at this machine's ceilings: work was eliminated, not sped up"
        )
    low, high = null.ratio.low, null.ratio.high
    if not null.quiet:
        # A power, because ratios multiply: twice as fast is as far from 1 as half as fast.
        high = max(high, 1.0 / low) ** NOISY_REACH
        low = 1.0 / high
        if low <= ratio.high and ratio.low <= high:
            return INCOMPARABLE, f"{null.sentence}; with the change {span}"
    low, high = min(low, 1.0 - LEAST_CHANGE), max(high, 1.0 + LEAST_CHANGE)
    if ratio.low > high:
        return FASTER, f"{span}; {null.sentence}"
    if ratio.high < low:
        return SLOWER, f"{span}; {null.sentence}"
    return SAME, f"{span} cannot be told from no change ({null.sentence})"
