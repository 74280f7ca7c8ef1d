"""Two processes that take turns: each runs its steps while the other, and all of its, is frozen."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from gobrrr.measure.clock import SystemClock
from gobrrr.measure.summary import Interval
from gobrrr.verification.evaluation import Evaluation
from gobrrr.verification.messages import Answer, Ended, Failed, Go, Ready, Spec, Turn
from gobrrr.verification.processes import Child, ChildFailed
from gobrrr.verification.records import read_record
from gobrrr.verification.timing import EndOfSteps, Timed, alternate
from gobrrr.verification.trial import Measured

# Long beside what a process needs to find its caches again.
TURN_S = 0.3
# What a process is, where its memory lies among other things, differs from one to the next.
MOST_PAIRS = 4
BEFORE, AFTER = 0, 1


@dataclass(frozen=True, slots=True)
class Start:
    """How to start one side.

    Attributes:
        spec: its first message.
        environment: variables to set for it.
        name: what a sentence calls it.
    """

    spec: Spec
    environment: Mapping[str, str]
    name: str


class SideFailed(ChildFailed):
    """One side did not work out; ``side`` is ``BEFORE`` or ``AFTER``."""

    def __init__(self, side: int, sentence: str) -> None:
        super().__init__(sentence)
        self.side = side


@dataclass(frozen=True)
class Alternated:
    """What two sides taking turns gave.

    Attributes:
        measured: all pairs of turns, of all pairs of processes; the interval of their ratio covers
            each pair of processes' own median.
        ready: what the two first processes said when their steps were warm.
        pairs: how many pairs of processes ran.
    """

    measured: Measured
    ready: tuple[Ready, Ready]
    pairs: int


def alternate_processes(
    before: Start,
    after: Start,
    *,
    budget_s: float,
    start_limit_s: float,
    enough: Callable[[Interval], bool],
    most_pairs: int = MOST_PAIRS,
    memory: bool = False,
) -> Alternated:
    """Start both, let them warm up one after the other, time them in turns; then a fresh pair.

    With ``memory`` one more step of the first pair is run for what it takes of it (scripts alone).

    Raises SideFailed with a sentence if one of them raises, crashes, hangs, ends without having
    run a step, or is not ready after ``start_limit_s``.
    """
    deadline = time.monotonic() + budget_s
    timed = Timed((), ())
    medians: list[float] = []
    first: _Pair | None = None
    peak: int | None = None
    pairs = 0
    longest_start_s = 0.0
    while pairs < most_pairs:
        begun = time.monotonic()
        left_s = deadline - begun
        if pairs and left_s < 2 * longest_start_s:
            break
        # An equal share of what is left for each pair that may still come.
        share_s = left_s / (most_pairs - pairs)
        pair = _one_pair(before, after, start_limit_s, share_s, enough, pairs % 2 == 1,
                         memory and not pairs)  # fmt: skip
        longest_start_s = max(longest_start_s, pair.start_s)
        first = first or pair
        pairs += 1
        peak = max(pair.peak_bytes, peak or 0)
        got = pair.timed
        if got.before:
            medians.append(got.ratio.median)
            timed = Timed(timed.before + got.before, timed.after + got.after)
            if pairs >= 2 and enough(_ratio(timed, medians)):
                break
    assert first is not None
    if len(timed.before) < 2:
        raise SideFailed(BEFORE, "ran too few steps to be timed: let it run longer")
    before_ready, after_ready = first.ready
    measured = Measured(
        timed, _ratio(timed, medians), (before_ready.started_s, after_ready.started_s),
        after_ready.first_call_s, peak, first.step_memory_bytes,
    )  # fmt: skip
    return Alternated(measured, first.ready, pairs)


def _ratio(timed: Timed, medians: list[float]) -> Interval:
    ratio = timed.ratio
    return Interval(median(medians) if len(medians) > 2 else ratio.median,
                    min(ratio.low, *medians), max(ratio.high, *medians))  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Pair:
    timed: Timed
    ready: tuple[Ready, Ready]
    peak_bytes: int
    start_s: float
    step_memory_bytes: tuple[int | None, int | None]


def _one_pair(
    before: Start,
    after: Start,
    start_limit_s: float,
    budget_s: float,
    enough: Callable[[Interval], bool],
    swapped: bool,
    memory: bool,
) -> _Pair:
    starts = (before, after)
    order = (AFTER, BEFORE) if swapped else (BEFORE, AFTER)
    sides: dict[int, _Side] = {}
    begun = time.monotonic()
    try:
        for which in order:
            sides[which] = _Side(which, starts[which], start_limit_s)
        start_s = time.monotonic() - begun
        timed = alternate(
            sides[BEFORE].turn,
            sides[AFTER].turn,
            budget_s=max(budget_s - start_s, 1.0),
            enough=enough,
            clock=SystemClock(),
        )
        ready = sides[BEFORE].ready, sides[AFTER].ready
        peak = sides[AFTER].peak_bytes
        taken: tuple[int | None, int | None] = None, None
        if memory:
            # Last: a script may have no step left.
            taken = sides[BEFORE].step_memory(), sides[AFTER].step_memory()
        return _Pair(timed, ready, peak, start_s, taken)
    finally:
        for side in sides.values():
            side.child.close()


class _Side:
    """A started process, frozen whenever it is not its turn."""

    def __init__(self, which: int, start: Start, start_limit_s: float) -> None:
        self._which = which
        self._name = start.name
        self.child = Child(start.spec, start.environment)
        try:
            ready = self._answer(start_limit_s, "it started")
            assert isinstance(ready, Ready)
        except BaseException:
            self.child.close()
            raise
        self.child.freeze()
        self.ready = ready
        step_s = max(ready.step_s, 1e-9)
        self._steps = max(1, round(TURN_S / step_s))
        # Far beyond what the machine's other load could explain.
        self._limit_s = 60.0 + 30.0 * step_s * self._steps
        self.peak_bytes = ready.peak_bytes

    def turn(self) -> float:
        """Seconds per step of one turn. Raises EndOfSteps, SideFailed."""
        return max(self._go(Go(self._steps)).seconds, 1e-9) / self._steps

    def step_memory(self) -> int | None:
        """Bytes that tensors of one more step take at once; ``None`` if there is none to run."""
        try:
            return self._go(Go(1, memory=True)).step_memory_bytes
        except EndOfSteps:
            return None

    def _go(self, go: Go) -> Turn:
        self.child.send(go)
        turn = self._answer(self._limit_s, "it was timed")
        assert isinstance(turn, Turn)
        self.child.freeze()
        self.peak_bytes = turn.peak_bytes
        return turn

    def _answer(self, timeout_s: float, doing: str) -> Answer:
        try:
            message = self.child.receive(timeout_s, f"while {doing}")
        except ChildFailed as failure:
            advice = ""
            if "no sign" in str(failure):
                advice = ": it hangs, or is slow to start and needs a larger --budget"
            raise SideFailed(self._which, f"{self._name} {failure}{advice}") from None
        if isinstance(message, Failed):
            raise SideFailed(self._which, f"{self._name}: {message.error}")
        if isinstance(message, Ended):
            self._ended(message, while_timed=doing == "it was timed")
        return message

    def _ended(self, ended: Ended, *, while_timed: bool) -> None:
        if ended.needs_input:
            raise SideFailed(
                self._which,
                f"{self._name} reads from its standard input, which is closed while fixes are "
                "tried: give what it asks for as arguments or in a file",
            )
        if ended.raised:
            raise SideFailed(self._which, f"{self._name} raised {ended.raised}")
        if ended.code:
            raise SideFailed(self._which, f"{self._name} ended with exit code {ended.code}")
        if while_timed:
            raise EndOfSteps
        sentence = (
            f"{self._name} ended after {ended.steps} steps: too few to be timed, let it run longer"
            if ended.steps
            else f"{self._name} never ran a step that gobrrr can see: put `with gobrrr.step():` "
            "around the body of its loop"
        )
        raise SideFailed(self._which, sentence)


def record_of_one_run(start: Start, limit_s: float) -> Evaluation | None:
    """What a side computes by the time it is warm; ``None`` if it does not get there."""
    try:
        with Child(start.spec, start.environment) as child:
            message = child.receive(limit_s, "while it ran once more")
    except ChildFailed:
        return None
    return read_record(message.computed) if isinstance(message, Ready) else None
