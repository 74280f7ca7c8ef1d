"""Two processes that take turns: each runs its steps while the other, and all of its, is frozen."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from gobrrr.measure.clock import SystemClock
from gobrrr.measure.noise import FEWEST_PAIRS, NULL_WIDTH, is_apart
from gobrrr.measure.summary import Interval
from gobrrr.timeline.quantities import count
from gobrrr.verification.evaluation import Evaluation
from gobrrr.verification.messages import Answer, Ended, Failed, Go, Ready, Spec, Turn
from gobrrr.verification.processes import Child, ChildFailed
from gobrrr.verification.records import read_record
from gobrrr.verification.timing import EndOfSteps, Timed, Undecided, alternate, never
from gobrrr.verification.trial import Measured

# Long beside what a process needs to find its caches again.
TURN_S = 0.3
# Of a script that ends before each side had its turns: what the next pair's take of those.
SHORTER_TURNS = 0.25
# However long the two took to start: four of their pairs of turns.
LEAST_TURNS_S = 2.5
# What a process is, where its memory lies among other things, differs from one to the next.
MOST_PAIRS = 4
BEFORE, AFTER = 0, 1
WhenWarm = Callable[[tuple[Ready, Ready]], None]


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


@dataclass(frozen=True, slots=True)
class InKernel:
    """What one process spent in the kernel per step, of how many seconds, in how many faults."""

    step_s: float
    system_s: float
    faults: float


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
        kernel: of each process, both sides in turn, what the kernel took of a step.
    """

    measured: Measured
    ready: tuple[Ready, Ready]
    kernel: tuple[InKernel, ...] = ()


def alternate_processes(
    before: Start,
    after: Start,
    *,
    budget_s: float,
    start_limit_s: float,
    enough: Callable[[Interval], bool],
    most_pairs: int = MOST_PAIRS,
    memory: bool = False,
    hidden: Undecided = never,
    extra_s: float = 0.0,
    when_warm: WhenWarm = lambda ready: None,
) -> Alternated:
    """Start both, let them warm up one after the other, time them in turns; then a fresh pair.

    What a change is worth that the null has ``hidden`` by then is told by further pairs of
    processes, as long as all agree on its side: ``FEWEST_PAIRS`` in all, if ``extra_s`` more are
    enough for them. With ``memory`` one more step of the first pair is run for what it takes of it
    (scripts alone). ``when_warm`` is told what each pair has computed before it is timed.

    Raises SideFailed with a sentence if one of them raises, crashes, hangs, ends without having
    run a step, or is not ready after ``start_limit_s``.
    """
    deadline = time.monotonic() + budget_s
    pairs = _Pairs(before, after, start_limit_s, enough, memory, when_warm)
    while pairs.count < most_pairs:
        left_s = deadline - time.monotonic()
        # A first pair that says nothing has a second, of shorter turns, whatever the budget.
        said = pairs.count >= 2 or len(pairs.timed.before) >= 2
        if pairs.count and said and left_s < 2 * pairs.longest_start_s:
            break
        # An equal share of what is left for each pair that may still come.
        pairs.add(left_s / (most_pairs - pairs.count))
        if pairs.count >= 2 and pairs.medians and enough(pairs.ratio):
            break
    if len(pairs.timed.before) < 2:
        raise SideFailed(BEFORE, "ran too few steps to be timed: let it run longer")
    deadline = time.monotonic() + extra_s
    while pairs.may_prove and hidden(pairs.ratio, len(pairs.timed.before)):
        if time.monotonic() + (FEWEST_PAIRS - pairs.count) * pairs.longest_s > deadline:
            break
        pairs.add(0.0)
    return pairs.alternated()


class _Pairs:
    """Pairs of processes that have run so far."""

    def __init__(
        self,
        before: Start,
        after: Start,
        start_limit_s: float,
        enough: Callable[[Interval], bool],
        memory: bool,
        when_warm: WhenWarm,
    ) -> None:
        self._when_warm = when_warm
        self._sides = before, after
        self._start_limit_s = start_limit_s
        self._enough = enough
        self._memory = memory
        self._first: _Pair | None = None
        self._peak_bytes = 0
        self.count = 0
        self.timed = Timed((), ())
        self.medians: list[float] = []
        self._kernel: list[InKernel] = []
        self.longest_start_s = self.longest_s = 0.0
        self._turn_s = TURN_S

    def add(self, budget_s: float) -> None:
        """Run one more, whose start counts too."""
        begun = time.monotonic()
        pair = _one_pair(
            *self._sides, self._start_limit_s, budget_s, self._enough,
            self.count % 2 == 1, self._memory and not self.count, self._turn_s, self._when_warm,
        )  # fmt: skip
        self.longest_s = max(self.longest_s, time.monotonic() - begun)
        self.longest_start_s = max(self.longest_start_s, pair.start_s)
        self._first = self._first or pair
        self._peak_bytes = max(self._peak_bytes, pair.peak_bytes)
        self.count += 1
        got = pair.timed
        self._kernel += pair.kernel
        if len(got.before) < 2:
            # The script ended before each side had two turns: the next pair takes shorter ones.
            self._turn_s *= SHORTER_TURNS
        if got.before:
            self.medians.append(got.ratio.median)
            self.timed = Timed(self.timed.before + got.before, self.timed.after + got.after)

    @property
    def ratio(self) -> Interval:
        """Before / after; its interval covers each pair's own median."""
        ratio, medians = self.timed.ratio, self.medians
        return Interval(median(medians) if len(medians) > 2 else ratio.median,
                        min(ratio.low, *medians), max(ratio.high, *medians))  # fmt: skip

    @property
    def may_prove(self) -> bool:
        """Whether further pairs may make so many that all of them agree on a change."""
        each = self.medians
        return len(each) == self.count < FEWEST_PAIRS and is_apart(min(each), max(each))

    def alternated(self) -> Alternated:
        """All of them."""
        assert self._first is not None
        before_ready, after_ready = self._first.ready
        measured = Measured(
            self.timed, self.ratio, (before_ready.started_s, after_ready.started_s),
            after_ready.first_call_s, self._peak_bytes, self._first.step_memory_bytes,
            len(self.medians), after_ready.modules,
        )  # fmt: skip
        return Alternated(measured, self._first.ready, tuple(self._kernel))


@dataclass(frozen=True, slots=True)
class _Pair:
    timed: Timed
    ready: tuple[Ready, Ready]
    peak_bytes: int
    start_s: float
    step_memory_bytes: tuple[int | None, int | None]
    kernel: tuple[InKernel, ...] = ()


def _one_pair(
    before: Start,
    after: Start,
    start_limit_s: float,
    budget_s: float,
    enough: Callable[[Interval], bool],
    swapped: bool,
    memory: bool,
    turn_s: float,
    when_warm: WhenWarm,
) -> _Pair:
    starts = (before, after)
    order = (AFTER, BEFORE) if swapped else (BEFORE, AFTER)
    sides: dict[int, _Side] = {}
    begun = time.monotonic()
    try:
        for which in order:
            sides[which] = _Side(which, starts[which], start_limit_s, turn_s)
        start_s = time.monotonic() - begun
        ready = sides[BEFORE].ready, sides[AFTER].ready
        when_warm(ready)
        timed = alternate(
            sides[BEFORE].turn,
            sides[AFTER].turn,
            budget_s=max(budget_s - start_s, LEAST_TURNS_S),
            enough=enough,
            clock=SystemClock(),
        )
        peak = sides[AFTER].peak_bytes
        taken: tuple[int | None, int | None] = None, None
        if memory:
            # Last: a script may have no step left.
            taken = sides[BEFORE].step_memory(), sides[AFTER].step_memory()
        kernel = tuple(sides[which].in_kernel() for which in (BEFORE, AFTER))
        return _Pair(timed, ready, peak, start_s, taken, kernel)
    finally:
        for side in sides.values():
            side.child.close()


class _Side:
    """A started process, frozen whenever it is not its turn."""

    def __init__(self, which: int, start: Start, start_limit_s: float, turn_s: float) -> None:
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
        self._steps = max(1, round(turn_s / step_s))
        # Far beyond what the machine's other load could explain.
        self._limit_s = 60.0 + 30.0 * step_s * self._steps
        self.peak_bytes = ready.peak_bytes
        self._turns: list[Turn] = []

    def turn(self) -> float:
        """Seconds per step of one turn. Raises EndOfSteps, SideFailed."""
        turn = self._go(Go(self._steps))
        self._turns.append(turn)
        return max(turn.seconds, 1e-9) / self._steps

    def in_kernel(self) -> InKernel:
        """The mean over its turns."""
        steps = max(self._steps * len(self._turns), 1)
        return InKernel(
            sum(turn.seconds for turn in self._turns) / steps,
            sum(turn.system_s for turn in self._turns) / steps,
            sum(turn.faults for turn in self._turns) / steps,
        )

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
            if "did not respond" in str(failure):
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
            f"{self._name} ended after {ended.steps} steps: too few to be timed, let it run "
            "longer, or put `with gobrrr.step():` around what is a step, if it is something shorter"
            if ended.steps
            else f"{self._name} ran no step that gobrrr can detect: put `with gobrrr.step():` "
            "around the body of its loop"
        )
        raise SideFailed(self._which, sentence)


def by_page_faults(kernel: Sequence[InKernel]) -> str:
    """Where processes of one program differ by time in the kernel: a clause that says so.

    That is, where the slower of those with most and with fewest faults spends more there by what
    makes a null noisy. Empty otherwise.
    """
    if len(kernel) < 2:
        return ""
    least = min(kernel, key=lambda one: one.faults)
    most = max(kernel, key=lambda one: one.faults)
    more_s = most.system_s - least.system_s
    if most.step_s <= least.step_s or more_s <= NULL_WIDTH * least.step_s:
        return ""
    faults = f"{count(round(least.faults))} to {count(round(most.faults))}"
    return f"because its processes take {faults} page faults a step"


def record_of_one_run(start: Start, limit_s: float) -> Evaluation | None:
    """What a side computes by the time it is warm; ``None`` if it does not get there."""
    try:
        with Child(start.spec, start.environment) as child:
            message = child.receive(limit_s, "while it ran once more")
    except ChildFailed:
        return None
    return read_record(message.computed) if isinstance(message, Ready) else None
