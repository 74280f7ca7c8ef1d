"""What a session gathers of a program's steps, and how many of each kind it takes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import mean, median, stdev
from typing import TYPE_CHECKING, Any

from gobrrr.devices.backend import ALLOCATOR_RETRIES, DRIVER_ALLOCATIONS, DriverCalls
from gobrrr.live.bare_steps import BareBlock
from gobrrr.live.kinds.step_kinds import LinesOf
from gobrrr.measure.load import MOSTLY_WAITED, TOO_LONG, Load
from gobrrr.measure.thread_effort import StepEffort
from gobrrr.observe.program_facts import MadeFact, PaddingFact, ProgramFacts, SubnormalFact
from gobrrr.observe.sampler import LineSample
from gobrrr.timeline.quantities import time_text
from gobrrr.timeline.step_kinds import SeenSteps, StepWindow, WallTime

if TYPE_CHECKING:
    from gobrrr.devices.card import CardSpan
    from gobrrr.live.profiles.profile import RawEvents
    from gobrrr.timeline.data import Timeline
    from gobrrr.timeline.graph import StepOp

PROFILED_STEPS = 7
# Of the ranks of a job at the least, if a step is no longer than ``LONG_STEP_S``.
FEWEST_OF_RANKS = 12
# Of steps longer than this each phase takes fewer, and none is let pass before one is measured:
# what a recorder or a starting profiler leaves behind is milliseconds.
LONG_STEP_S = 0.7
# Of steps longer than this one warms up, and no lines are sampled.
VERY_LONG_STEP_S = 8.0
# Warm-up ends when the last three steps agree within this, or after these many steps and seconds.
SETTLED_SPREAD = 0.10
WARMUP_MOST_STEPS, WARMUP_MOST_S = 30, 8.0
# The median of so many steps beside that of as many before: half of them may be disturbed.
STEADY_STEPS = 6
# Steps that much longer than the last one compiled or loaded something: none of those seconds.
STARTING = 10
# Steps with more ops than this are profiled three times rather than seven, and of steps with still
# more no more ops than these: reading events takes longer than recording them.
MANY_OPS = 10_000
MOST_OPS_PROFILED = 150_000
# Events that one profiling run may hold: kineto keeps about 1.5 kB for each until it is read.
EVENTS_PER_PROFILE = 75_000
# Steps that are timed before anything is attached: ten, and of short ones up to twenty.
FIRST_BLOCK_STEPS, FIRST_BLOCK_MOST_STEPS, FIRST_BLOCK_S = 10, 20, 0.3
# Of later steps so many are bare (``gobrrr.live.bare_steps``).
MOST_BARE = 100
# Steps with more ops than this fill gigabytes: an op is up to five events of torch's profiler, and
# an event 1.5 kB until it is read.
MOST_OPS_OF_PROFILER = 60_000
UNRECORDED = (
    "The ops of this step could not be recorded ({}): its time was measured, but the FLOPs "
    "and bytes of its ops are unknown, so their time is unmodelled."
)
UNRECORDED_ON_GPU = (
    "The ops of this step could not be recorded ({}): its kernels have the shapes that torch's "
    "profiler saw, but no lines and no modules."
)
TOO_LONG_BETWEEN = (
    "what the program does between its steps is more than torch's profiler can hold in memory"
)
BY_DISPATCH = (
    "ops were timed through the dispatcher instead, which separates autograd's time from Python's "
    "less precisely."
)


def unrecorded_notice(why: str, on_gpu: bool) -> str:
    """What is missing of a step whose ops could not be recorded."""
    return (UNRECORDED_ON_GPU if on_gpu else UNRECORDED).format(why)


# What figures are for, and this rank's; returns those of all ranks.
Agree = Callable[[str, dict[str, float]], dict[str, float]]
# The fewest unprofiled steps that a step time is worth stating from.
FEWEST_STEPS = 2


# How many steps are recorded where they differ in size, and how many are profiled.
VARYING_RECORDED, VARYING_PROFILED = 6, 14
# A mean over steps of different sizes takes these many, if they take no longer than this.
VARYING_TIMED, VARYING_TIMED_S, MOST_TIMED = 100, 20.0, 1_000_000
# ... and more of them, within those seconds, until the standard error of the mean is below this.
MEAN_ERROR = 0.03
# Steps that are let go by because something else was beside them, before one is taken as it is.
MOST_RETRIES = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """How many steps each phase takes; ``None``: chosen from the steps' length.

    ``of_ranks``: this is one rank of several, which are to be told apart. ``recorded``: the usual
    steps whose ops are recorded, if these are short and few: of two, one tells what varies.
    """

    warmup: int | None = None
    steps: int | None = None
    profiled: int | None = None
    of_ranks: bool = False
    recorded: int = 1


@dataclass(frozen=True)
class RecordedStep:
    """The ops of one step; ``window`` is its place in ``Measurements.windows``."""

    ops: list[StepOp]
    window: int


@dataclass(frozen=True)
class StepKind:
    """Which steps the figures are of (``gobrrr.live.kinds.same_steps``).

    Attributes:
        name: what such a step is; ``""`` where its ops say it.
        varying: they differ in size or in what they do: figures are means over them.
        tokens: that one step makes, where it makes tokens.
        others: recorded steps of other sizes, each with what it counts in the mean; the share of
            ``Measurements.recorded`` itself comes first, with its own ops.
        wall: what the wall time goes to; ``None`` where that cannot be told.
        seen: all such steps, not the timed ones alone; ``None`` where that cannot be told.
        page_faults: of such a step when nothing is attached to it; ``None`` if not counted.
        fault_ns: what one of them costs, by timed steps that have more and fewer; ``None`` where
            these do not tell.
        window_counts: how much each profiled step of a device counts in a mean over the sizes of
            the timed ones, 1 on average; empty where all are alike.
        bare: the timed ones are those at whose ends nothing but a clock and a counter was read.
    """

    name: str = ""
    varying: bool = False
    tokens: int | None = None
    others: tuple[tuple[list[StepOp], float], ...] = ()
    wall: WallTime | None = None
    seen: SeenSteps | None = None
    page_faults: float | None = None
    fault_ns: float | None = None
    window_counts: tuple[float, ...] = ()
    bare: bool = False


@dataclass
class Measurements:
    """What a session has gathered so far.

    ``step_is``: what a step was taken to be, and how many ran, as a sentence; empty if unknown.
    ``plain_ns`` are unprofiled step lengths, in two lists: before and after the profiled steps.
    ``bare`` are further ones, by block, of which there are no windows; of the steps that figures
    are of (``kind.bare``) they are those of ``plain_ns``.
    ``driver_calls``: of the device's allocator in ``driver_call_steps`` timed steps; ``None``: not
    counted.
    ``efforts`` are what their thread did in timed steps, by window, in those too that turned out
    to have something beside the step.
    ``windows`` are all steps in order, whatever was done with them; the lists of windows beside
    plain, profiled and sampled steps say which of them these are. ``after_last`` is what the
    program did after the last of them, where it ended meanwhile. ``kind`` is set once steps have
    been told apart, and only steps of that kind are left. ``fused_optimizer``: an optimizer of the
    program has a fused implementation; ``None`` where none was seen.
    ``card`` is what the driver said of the GPU before and after each block of timed steps.
    ``device_timeline`` holds the profiled steps of a program on a GPU (``profiled`` is then empty).
    ``disturbance`` says what else used the processors during those steps, if anything did (of
    several blocks the one that suffered most, by so much: ``severity``);
    ``taken_away``: so much that the times say nothing of the program.
    ``stolen``: about this share of those steps a hypervisor took (``Load.stolen_share``).
    ``generated`` holds the sources of kernels that were compiled, by name.
    ``unrecorded``: the step cannot run while its ops are recorded; ``recorded`` are names alone.
    ``unprofiled``: why no profiler could be started: only the time of a step is known.
    ``module_classes``: the class of each module that the recorded ops name, by its path.
    ``by_dispatch``: ops were timed through the dispatcher, not by torch's profiler.
    ``sampled`` are profiled steps with line samples (times from each step's start), for lines only.
    ``sampled_timeline`` holds the same of a device, and ``line_samples`` are on its clock.
    ``made``: tensors that the recorded steps made of Python's objects; ``padding`` of their calls;
    ``subnormal``: their ops that met subnormal numbers.
    ``program`` tells what was noted beside the steps in the windows that it is given.
    ``groups``: ranks of each process group while steps are profiled; a script may leave them then.
    ``group_titles``: what each is called in a report. ``own_rank``: of this process among them.
    """

    source: str = ""
    step_is: str = ""
    warmup_ns: list[int] = field(default_factory=list)
    plain_ns: list[list[int]] = field(default_factory=lambda: [[], []])
    driver_calls: DriverCalls | None = None
    driver_call_steps: int = 0
    efforts: dict[int, StepEffort] = field(default_factory=dict)
    profiled: list[RawEvents] = field(default_factory=list)
    sampled: list[tuple[RawEvents, list[LineSample]]] = field(default_factory=list)
    sampled_timeline: Timeline | None = None
    line_samples: list[LineSample] = field(default_factory=list)
    recorded: list[StepOp] | None = None
    device_timeline: Timeline | None = None
    thread: int = 0
    card: tuple[CardSpan, ...] = ()
    disturbance: str | None = None
    severity: float = 0.0
    taken_away: bool = False
    stolen: float = 0.0
    notices: list[str] = field(default_factory=list)
    generated: dict[str, str] = field(default_factory=dict)
    by_dispatch: bool = False
    unrecorded: bool = False
    unprofiled: str = ""
    windows: list[StepWindow] = field(default_factory=list)
    after_last: StepWindow | None = None
    plain_windows: list[list[int]] = field(default_factory=lambda: [[], []])
    bare: dict[int, BareBlock] = field(default_factory=dict)
    profiled_windows: list[int] = field(default_factory=list)
    sampled_windows: list[int] = field(default_factory=list)
    recorded_steps: list[RecordedStep] = field(default_factory=list)
    module_classes: dict[str, str] = field(default_factory=dict)
    lines_between: LinesOf = lambda *_: Counter()
    made: list[MadeFact] = field(default_factory=list)
    padding: list[PaddingFact] = field(default_factory=list)
    subnormal: list[SubnormalFact] = field(default_factory=list)
    program: Callable[[Sequence[StepWindow], Iterable[BareBlock]], ProgramFacts] = (
        lambda windows, bare: ProgramFacts()
    )
    kind: StepKind = field(default_factory=StepKind)
    fused_optimizer: bool | None = None
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    group_titles: dict[str, str] = field(default_factory=dict)
    own_rank: int | None = None

    def see_groups(self) -> None:
        """Keep who is in which process group now."""
        from gobrrr.live.profiles.collective_calls import group_titles, own_rank, process_groups

        self.groups |= process_groups()
        self.group_titles |= group_titles()
        self.own_rank = own_rank()

    def see_recorder(self, recorder: Any) -> None:
        """Keep what a recorder of ops knows beside the ops, as far as it is one that does."""
        self.module_classes |= getattr(recorder, "classes", {})
        self.made += getattr(recorder, "made", [])
        watch = getattr(recorder, "padding", None)
        self.padding += () if watch is None else watch.seen
        numbers = getattr(recorder, "subnormal", None)
        self.subnormal += () if numbers is None else numbers.facts()
        for name, why in getattr(recorder, "failures", {}).items():
            self.notices.append(f"{name} could not be recorded in full ({why}).")

    def note_driver_calls(self, before: DriverCalls, after: DriverCalls, steps: int) -> None:
        """Keep what a device's allocator asked of the driver in a block of timed steps."""
        known = self.driver_calls or DriverCalls(0, 0)
        retries, allocations = (now - then for now, then in zip(after, before))
        self.driver_calls = DriverCalls(known.retries + retries, known.allocations + allocations)
        self.driver_call_steps += steps

    @property
    def driver_call_counters(self) -> dict[str, float]:
        """The same per step, by the names of counters; empty where there were none."""
        calls, steps = self.driver_calls, self.driver_call_steps
        if calls is None or not steps or not any(calls):
            return {}
        return {
            ALLOCATOR_RETRIES: calls.retries / steps,
            DRIVER_ALLOCATIONS: calls.allocations / steps,
        }

    def not_profiled(self, why: str) -> None:
        """Keep why no profiler could be started, for whoever asks and for whoever reads."""
        self.unprofiled = why
        self.notices.insert(0, f"No step could be profiled: {why.rstrip('.')}.")

    def note(self, load: Load) -> None:
        """Keep what the machine did beside a block of timed steps."""
        said = load.disturbance()
        if said is not None and (self.disturbance is None or load.severity > self.severity):
            self.disturbance, self.severity = said, load.severity
        self.taken_away |= load.taken_away
        self.stolen = max(self.stolen, load.stolen_share)

    @property
    def mostly_waited(self) -> bool:
        """Whether it waited for a processor so long that a line says where it was interrupted."""
        return self.taken_away or self.severity > MOSTLY_WAITED

    @property
    def load_notices(self) -> list[str]:
        """What to say of the machine: that something else used it, or nothing.

        Nothing either where that is why there is no verdict, which is said with that.
        """
        if not self.disturbance or self.taken_away:
            return []
        cause = self.disturbance[0].upper() + self.disturbance[1:]
        lines = ", and no line of Python is blamed" if self.mostly_waited else ""
        return [f"{cause}: {TOO_LONG}{lines}."]

    @property
    def plain_ended_s(self) -> list[float]:
        """When each of those steps ended, in seconds on ``time.perf_counter``."""
        if self.kind.bare:
            return [ns * 1e-9 for block in self.bare.values() for ns in block.ended_ns]
        places = self.plain_windows[0] + self.plain_windows[1]
        return [self.windows[i].end_ns * 1e-9 for i in places]

    @property
    def all_plain_ns(self) -> list[int]:
        """Unprofiled step lengths of both blocks."""
        return self.plain_ns[0] + self.plain_ns[1]

    @property
    def timed_ns(self) -> list[int]:
        """Those and the lengths of bare steps."""
        bare = (ns for block in self.bare.values() for ns in block.lengths_ns)
        return [*bare, *self.all_plain_ns]

    @property
    def efforts_of_plain(self) -> list[StepEffort]:
        """What the thread of the steps did in them, as far as it is known."""
        windows = [*self.plain_windows[0], *self.plain_windows[1]]
        return [self.efforts[window] for window in windows if window in self.efforts]

    @property
    def slept_ns(self) -> list[int]:
        """How much of each of them the thread of the steps slept (empty: not told)."""
        slept = [effort.slept_ns for effort in self.efforts_of_plain]
        return [slept_ns for slept_ns in slept if slept_ns is not None]


def plain_steps_wanted(step_s: float) -> int:
    """Steps per block: about 1.2 s of them, at least 6, at most 200; of long steps 3 s, or one.

    >>> plain_steps_wanted(0.1), plain_steps_wanted(0.0001), plain_steps_wanted(1), \
plain_steps_wanted(90)
    (12, 200, 3, 1)
    """
    if step_s > LONG_STEP_S:
        return max(1, int(3 / step_s))
    return max(6, min(200, math.ceil(1.2 / step_s)))


def profiled_steps_wanted(step_s: float) -> int:
    """About seven; more of very short steps, fewer of very long ones (5 s of them, or one).

    >>> profiled_steps_wanted(0.1), profiled_steps_wanted(0.0001), profiled_steps_wanted(2), \
profiled_steps_wanted(90)
    (7, 40, 2, 1)
    """
    if step_s > LONG_STEP_S:
        return max(1, min(PROFILED_STEPS, int(5 / step_s)))
    return max(PROFILED_STEPS, min(40, math.ceil(0.010 / step_s)))


def plain_steps_planned(plan: Plan, step_s: float, varying: bool) -> tuple[int, int]:
    """Steps to time in the first and in the second block; more where they differ in size.

    The first block is short: a program that ends soon should have been profiled by then.
    """
    total = plan.steps
    if total is None:
        total = 2 * plain_steps_wanted(step_s)
        if varying:
            total = max(total, min(VARYING_TIMED, int(VARYING_TIMED_S / step_s)))
    first = max(FIRST_BLOCK_STEPS, min(FIRST_BLOCK_MOST_STEPS, int(FIRST_BLOCK_S / step_s)))
    first = min(first, (total + 1) // 2)
    return first, max(1, total - first)


def bare_steps_planned(steps: int) -> int:
    """How many of so many timed steps are bare, the last ones: of the others the calls are known.

    >>> bare_steps_planned(60), bare_steps_planned(380)
    (20, 100)
    """
    return min(MOST_BARE, steps // 3)


def steps_discarded(step_s: float, ops: int, *, device: bool) -> int:
    """Steps that a fresh profiler's start is paid in: none of steps that do not notice it.

    On a device two: the last has no next one to end it.
    """
    if device:
        return 2
    return 0 if ops > MANY_OPS or step_s > LONG_STEP_S else 1


def device_steps_sampled(step_s: float, ops: int) -> int:
    """Steps on a device whose lines are sampled: some 0.2 s of them, three at the least.

    >>> device_steps_sampled(0.003, 100), device_steps_sampled(0.5, 100), \
device_steps_sampled(0.003, 20_000)
    (40, 3, 3)
    """
    return 3 if ops > MANY_OPS else max(3, min(40, math.ceil(0.2 / step_s)))


def fills_profile(steps: int, ops: int) -> bool:
    """Whether so many steps are more than a profile should hold: about two events an op."""
    return steps * max(1, 2 * ops) > EVENTS_PER_PROFILE


def steps_for_mean(plan: Plan, measured: Measurements) -> int:
    """How many more steps of different sizes a mean over them takes.

    The standard error of a mean of n is the spread over the root of n.

    >>> steps_for_mean(Plan(), Measurements(plain_ns=[[1_000_000, 3_000_000] * 50, []]))
    181
    >>> steps_for_mean(Plan(), Measurements(plain_ns=[[2_000_000] * 50, [2_000_000] * 50]))
    0
    """
    lengths_ns = measured.all_plain_ns
    if plan.steps is not None or len(lengths_ns) < FEWEST_STEPS:
        return 0
    middle_ns = mean(lengths_ns)
    wanted = math.ceil((stdev(lengths_ns) / middle_ns / MEAN_ERROR) ** 2)
    most = min(wanted, int(VARYING_TIMED_S * 1e9 / middle_ns)) - len(lengths_ns)
    return max(0, min(most, steps_affordable(plan, measured)))


def steps_affordable(plan: Plan, measured: Measurements) -> int:
    """How many more steps are timed at the most, if they are as the latest: they may have grown.

    Ranks of a job take as many as they have agreed on.

    >>> grown = Measurements(plain_ns=[[5_000_000] * 100, [200_000_000] * 6])
    >>> steps_affordable(Plan(), grown), steps_affordable(Plan(steps=900), grown)
    (91, 900)
    """
    lengths_ns = measured.timed_ns
    if plan.steps is not None or plan.of_ranks or len(lengths_ns) < FEWEST_STEPS:
        return plan.steps or MOST_TIMED
    left_ns = VARYING_TIMED_S * 1e9 - sum(lengths_ns)
    return max(0, int(left_ns / max(1, median(lengths_ns[-STEADY_STEPS:]))))


def profiled_of_ranks_wanted(step_s: float) -> int:
    """Of the ranks of a job more: how they differ is small beside how steps do; about a second.

    Of seven steps on each of two ranks hardly any of one may be shorter than any of the other's for
    the difference to be more than chance (three standard deviations): 48 of the 49 pairs have to be
    longer; of twelve steps 124 of 144.

    >>> profiled_of_ranks_wanted(0.03), profiled_of_ranks_wanted(0.0001), \
profiled_of_ranks_wanted(0.3), profiled_of_ranks_wanted(2)
    (34, 40, 12, 2)
    """
    fewest = FEWEST_OF_RANKS if step_s <= LONG_STEP_S else 0
    return max(profiled_steps_wanted(step_s), fewest, min(40, math.ceil(1.0 / step_s)))


def profiled_steps_planned(plan: Plan, step_s: float, ops: int, varying: bool) -> int:
    """Steps to profile, of so many ops each."""
    usual = profiled_of_ranks_wanted if plan.of_ranks else profiled_steps_wanted
    wanted = plan.profiled or usual(step_s)
    if plan.profiled is None and plan.steps is not None:
        # Who asks for few steps has few: the usual number, also of very short ones.
        wanted = min(wanted, PROFILED_STEPS)
    if plan.profiled is None and varying:
        wanted = max(wanted, VARYING_PROFILED)
    if ops > MANY_OPS:
        wanted = min(wanted, 3, max(1, MOST_OPS_PROFILED // ops))
    return wanted


def settled(lengths_ns: Sequence[int]) -> bool:
    """Whether the last warm-up steps agree, get no shorter, or there have been enough of them."""
    last = lengths_ns[-3:]
    if last[-1] > VERY_LONG_STEP_S * 1e9 or max(last) <= (1 + SETTLED_SPREAD) * min(last):
        return True
    if len(lengths_ns) >= 2 * STEADY_STEPS:
        # Steps that differ anyway, of other shapes or on a busy machine, never agree.
        earlier = lengths_ns[-2 * STEADY_STEPS : -STEADY_STEPS]
        if median(earlier) <= (1 + SETTLED_SPREAD) * median(lengths_ns[-STEADY_STEPS:]):
            return True
    warm_ns = sum(length for length in lengths_ns if length <= STARTING * last[-1])
    return len(lengths_ns) >= WARMUP_MOST_STEPS or warm_ns > WARMUP_MOST_S * 1e9


def few_steps_notices(plan: Plan, measured: Measurements, step_s: float) -> list[str]:
    """What to say where the steps are so long that few were measured."""
    timed, profiled = len(measured.timed_ns), len(measured.profiled)
    if plan.steps is not None or plan.profiled is not None or not 0 < timed < 6:
        return []
    return [
        f"A step takes {time_text(step_s)}, so only a few were measured: {timed} timed (the "
        f"interval is the shortest and the longest), {profiled} profiled. --steps N (steps=N) "
        "sets how many are timed."
    ]
