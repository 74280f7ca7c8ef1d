"""The measurement itself, driven by step boundaries: warm up, record, time, profile, sample, leave.

One state machine for every kind of target. A script calls ``boundary`` from hooks, a function from
a plain loop. Each phase is a whole number of steps; what a phase costs is never in another's time.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from gobrrr.capture.dispatch_profile import DispatchProfiler
from gobrrr.capture.generated_kernels import generated_kernel_sources
from gobrrr.capture.op_recorder import OpRecorder
from gobrrr.capture.profile import HostProfiler, RawEvents
from gobrrr.capture.sampler import LineSample, LineSampler
from gobrrr.capture.unrecorded import ops_of_profile
from gobrrr.measure.load import LoadWatch
from gobrrr.timeline.data import Timeline
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.quantities import time_text

WARMUP, RECORD, TIME, PROFILE, SAMPLE, DONE = (
    "warm-up", "recording ops", "timing", "profiling", "sampling lines", "done",
)  # fmt: skip

# Events that one profiling run may hold: kineto keeps about 4 kB for each until it is read.
EVENTS_PER_PROFILE = 150_000
FIRST_BLOCK_MOST_STEPS = 10
PROFILED_STEPS = 7
# Steps with more ops than this are profiled three times rather than seven, and of steps with still
# more no more ops than these: reading events takes longer than recording them.
MANY_OPS = 10_000
MOST_OPS_PROFILED = 150_000
# Steps with more ops than this fill gigabytes: an op is up to five events of torch's profiler, and
# an event 1.5 kB until it is read.
MOST_OPS_OF_PROFILER = 60_000
# Warm-up ends when the last three steps agree within this, or after these many steps and seconds.
SETTLED_SPREAD = 0.10
WARMUP_MOST_STEPS, WARMUP_MOST_S = 30, 8.0
# Of steps longer than this each phase takes fewer, and none is let pass before one is measured:
# what a recorder or a starting profiler leaves behind is milliseconds.
LONG_STEP_S = 0.7
# Of steps longer than this one warms up, and no lines are sampled.
VERY_LONG_STEP_S = 8.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How many steps each phase takes; ``None``: chosen from the steps' length."""

    warmup: int | None = None
    steps: int | None = None
    profiled: int | None = None


@dataclass
class Measurements:
    """What a session has gathered so far.

    ``plain_ns`` are unprofiled step lengths, in two lists: before and after the profiled steps.
    ``device_timeline`` holds the profiled steps of a program on a GPU (``profiled`` is then empty).
    ``disturbance`` says what else used the processors during those steps, if anything did.
    ``generated`` holds the sources of kernels that were compiled, by name.
    ``unrecorded``: the step cannot run while its ops are recorded; ``recorded`` are names alone.
    ``by_dispatch``: ops were timed through the dispatcher, not by torch's profiler.
    ``sampled`` are profiled steps with line samples (times from each step's start), for lines only.
    """

    source: str = ""
    warmup_ns: list[int] = field(default_factory=list)
    plain_ns: list[list[int]] = field(default_factory=lambda: [[], []])
    profiled: list[RawEvents] = field(default_factory=list)
    sampled: list[tuple[RawEvents, list[LineSample]]] = field(default_factory=list)
    recorded: list[StepOp] | None = None
    device_timeline: Timeline | None = None
    thread: int = 0
    disturbance: str | None = None
    notices: list[str] = field(default_factory=list)
    generated: dict[str, str] = field(default_factory=dict)
    by_dispatch: bool = False
    unrecorded: bool = False

    @property
    def all_plain_ns(self) -> list[int]:
        """Unprofiled step lengths of both blocks."""
        return self.plain_ns[0] + self.plain_ns[1]


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


class Session:
    """Runs the phases. ``boundary`` is called at each step's end, in the thread of the loop.

    ``between`` (optional) runs between two steps whose lengths are not compared, for instance to
    restore state; ``on_phase(phase, done, wanted)`` reports progress.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        clock: Callable[[], int] = time.perf_counter_ns,
        on_phase: Callable[[str, int, int], None] = lambda phase, done, wanted: None,
        modules: dict[str, Any] | None = None,
        make_recorder: Callable[[], Any] | None = None,
        make_profiler: Callable[[], Any] = HostProfiler,
        make_sampler: Callable[[int], Any] = LineSampler,
        find_device: Callable[[], Any] = lambda: None,
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._on_phase = on_phase
        self._modules = modules
        self._make_recorder = make_recorder or (lambda: OpRecorder(roots=self._modules))
        self._given_profiler = make_profiler
        self._make_sampler = make_sampler
        self._find_device = find_device
        self._device: Any = None
        self._profiler: Any = None
        self._recorder: Any = None
        self._sampler: Any = None
        self._begin()

    def _begin(self) -> None:
        self.result = Measurements()
        self._make_profiler = self._given_profiler
        self.phase = WARMUP
        self._steps_in_phase = 0
        self._wanted = self._plan.warmup if self._plan.warmup is not None else 3
        self._block = 0
        self._watch = LoadWatch()
        self._profiled_wanted = 0
        self._since_ns: int | None = None

    @property
    def done(self) -> bool:
        """Whether all phases are over."""
        return self.phase == DONE

    @property
    def watches(self) -> bool:
        """Whether something of gobrrr's is attached to the step that runs now."""
        return self._recorder is not None or self._profiler is not None

    def restart(self) -> None:
        """Forget everything: what a step is has changed."""
        self.abandon()
        self._begin()

    def salvage(self) -> None:
        """The program has ended: keep the steps that were profiled so far."""
        profiling = self.phase == PROFILE and self._profiler is not None
        if profiling and self._device is None and self._steps_in_phase >= 2:
            self.result.profiled += self._profiler.stop()[1:]
            self.result.generated = generated_kernel_sources()
            self._profiler = None

    def abandon(self) -> None:
        """Stop whatever is running; results so far stay readable."""
        if self._sampler is not None:
            self._sampler.stop()
            self._sampler = None
        if self._profiler is not None:
            self._profiler.abandon()
            self._profiler = None
        if self._recorder is not None:
            self._recorder.stop()
            self._recorder = None

    def go_on_without(self, why: str) -> bool:
        """Do without what the present phase gives: the step fails while it is watched so.

        The step that failed is over and is not measured. False if nothing is left to do instead.
        """
        phase, device = self.phase, self._device
        self.abandon()
        self._since_ns = None
        if phase == RECORD:
            self.result.unrecorded = True
            self.result.notices.insert(
                0,
                f"The ops of this step could not be recorded ({why}): its time is measured, but "
                "not what its ops compute or move, so the time of ops is unmodelled.",
            )
            self._enter_timing(0)
            return True
        if phase == PROFILE and device is None and not self._times_by_dispatch:
            if self.result.unrecorded:
                return False
            self._time_through_dispatcher(f"The step fails under torch's profiler ({why})")
            self._enter(PROFILE, self._profiled_wanted + 1)
            self._start_profiling(sample=False)
            return True
        if phase == SAMPLE:
            self.result.notices.append(f"Lines could not be sampled ({why}).")
            self._enter(DONE, 0)
            return True
        return False

    @property
    def _times_by_dispatch(self) -> bool:
        return self._make_profiler is DispatchProfiler

    def boundary(self, source: str) -> bool:
        """One step has ended. Returns true when the session has just become done."""
        now = self._clock()
        if self.done:
            return False
        self.result.source = source
        self.result.thread = threading.get_ident()
        if self._since_ns is not None:
            self._step_ended(now - self._since_ns)
        self._on_phase(self.phase, self._steps_in_phase, self._wanted)
        self._since_ns = self._clock()
        return self.done

    # Phases

    def _step_ended(self, length_ns: int) -> None:
        self._steps_in_phase += 1
        if self.phase == WARMUP:
            self._warmup_ended(length_ns)
        elif self.phase == RECORD:
            self._record_ended()
        elif self.phase == TIME:
            self._time_ended(length_ns)
        elif self.phase in (PROFILE, SAMPLE):
            self._profile_ended()

    def _enter(self, phase: str, wanted: int) -> None:
        if phase == DONE:
            self._say_if_few()
        if self.phase == PROFILE and phase != PROFILE:
            self.result.generated = generated_kernel_sources()
        self.phase, self._wanted, self._steps_in_phase = phase, wanted, 0

    def _warmup_ended(self, length_ns: int) -> None:
        lengths = self.result.warmup_ns
        lengths.append(length_ns)
        if self._plan.warmup is None and lengths[-1] > LONG_STEP_S * 1e9:
            self._wanted = 1 if lengths[-1] > VERY_LONG_STEP_S * 1e9 else 2
        if len(lengths) < self._wanted:
            return
        if self._plan.warmup is None and not self._settled(lengths):
            self._wanted = len(lengths) + 1
            return
        self._device = self._find_device()
        self._enter(RECORD, 1)
        self._start_recording()

    @staticmethod
    def _settled(lengths: list[int]) -> bool:
        last = lengths[-3:]
        if last[-1] > VERY_LONG_STEP_S * 1e9:
            return True
        if max(last) <= (1 + SETTLED_SPREAD) * min(last):
            return True
        return len(lengths) >= WARMUP_MOST_STEPS or sum(lengths) > WARMUP_MOST_S * 1e9

    def _start_recording(self) -> None:
        self._recorder = self._make_recorder()
        self._recorder.start()

    def _record_ended(self) -> None:
        if self._recorder is not None:
            self.result.recorded = self._recorder.stop()
            for name, why in getattr(self._recorder, "failures", {}).items():
                self.result.notices.append(f"{name} could not be recorded in full ({why}).")
            self._recorder = None
            if self._step_s() <= LONG_STEP_S:
                # One passes unmeasured: the recorded one left caches and the allocator changed.
                self._wanted = 2
                return
        self._enter_timing(0)

    def _step_s(self) -> float:
        lengths = self.result.all_plain_ns or self.result.warmup_ns[-3:]
        return max(1e-9, median(lengths) * 1e-9)

    def _enter_timing(self, block: int) -> None:
        self._block = block
        steps = self._plan.steps
        total = 2 * plain_steps_wanted(self._step_s()) if steps is None else steps
        # The first block is short: a program that ends soon should have been profiled by then.
        first = min(FIRST_BLOCK_MOST_STEPS, (total + 1) // 2)
        wanted = first if block == 0 else max(1, total - first)
        self._enter(TIME, wanted)
        self._watch = LoadWatch()
        if self._device is not None:
            self._device.start_block()

    def _time_ended(self, length_ns: int) -> None:
        self.result.plain_ns[self._block].append(length_ns)
        if self._device is not None:
            self._device.mark()
        if self._steps_in_phase < self._wanted:
            return
        found = self._watch.so_far().disturbance()
        self.result.disturbance = self.result.disturbance or found
        if self._device is not None:
            # The host runs ahead of a device: its own clock says when steps were issued, not done.
            self.result.plain_ns[self._block] = self._device.end_block()
        if self._block == 0:
            wanted = self._plan.profiled or profiled_steps_wanted(self._step_s())
            if self._plan.profiled is None and self._plan.steps is not None:
                # Who asks for few steps has few: the usual number, also of very short ones.
                wanted = min(wanted, PROFILED_STEPS)
            ops = len(self.result.recorded or ())
            if ops > MANY_OPS:
                wanted = min(wanted, 3, max(1, MOST_OPS_PROFILED // ops))
            if ops > MOST_OPS_OF_PROFILER and self._device is None:
                self._time_through_dispatcher(
                    f"{ops:,} ops a step are more than torch's profiler can hold in memory"
                )
            self._profiled_wanted = wanted
            self._enter(PROFILE, wanted + self._discarded())
            self._start_profiling(sample=False)
        elif self._device is not None or self._step_s() > VERY_LONG_STEP_S:
            self._enter(DONE, 0)
        else:
            self._enter(SAMPLE, 1 + 2 * self._discarded())
            self._start_profiling(sample=True)

    def _say_if_few(self) -> None:
        timed, profiled = len(self.result.all_plain_ns), len(self.result.profiled)
        if self._plan.steps is None and self._plan.profiled is None and 0 < timed < 6:
            self.result.notices.append(
                f"A step takes {time_text(self._step_s())}, so few are measured: {timed} timed "
                f"(the interval is the shortest and the longest), {profiled} profiled. "
                "--steps N (steps=N) times more."
            )

    def _discarded(self) -> int:
        """Steps that a fresh profiler's start is paid in: none of steps that do not notice it."""
        if self._device is not None:
            return 1
        many = len(self.result.recorded or ()) > MANY_OPS
        return 0 if many or self._step_s() > LONG_STEP_S else 1

    def _start_profiling(self, *, sample: bool) -> None:
        device = self._device
        self._profiler = self._make_profiler() if device is None else device.make_profiler()
        try:
            self._profiler.start()
        except RuntimeError as error:
            if device is None and not self._times_by_dispatch:
                self._profile_by_dispatch(str(error))
            else:
                self._profiler = None
                self.result.notices.append(f"Could not profile: {error}.")
                self._enter(DONE, 0)
                return
        if sample:
            self._sampler = self._make_sampler(self.result.thread)
            self._sampler.start()

    def _profile_by_dispatch(self, why: str) -> None:
        self._time_through_dispatcher(f"{why[0].upper()}{why[1:]}, and only one can run at a time")
        self._profiler = DispatchProfiler()
        self._profiler.start()

    def _time_through_dispatcher(self, why: str) -> None:
        self.result.notices.append(
            f"{why}: ops were timed through the dispatcher instead, which tells autograd's and "
            "Python's share apart less well."
        )
        self.result.by_dispatch = True
        self._make_profiler = DispatchProfiler

    def _profile_ended(self) -> None:
        self._profiler.mark()
        if self._device is None and self._profiler.interrupted:
            if self._sampler is not None:
                self._sampler.stop()
            self._sampler = None
            self._profiler.abandon()
            self._profile_by_dispatch("the step runs a profiler of its own")
            self._enter(PROFILE, self._profiled_wanted + 1)
            return
        ops = len(self.result.recorded or ())
        first = self._discarded()
        # About two events an op: composites have their own.
        full = (self._steps_in_phase + 1) * max(1, 2 * ops) > EVENTS_PER_PROFILE
        if self._steps_in_phase < self._wanted and not (full and self._steps_in_phase > first):
            return
        if self._device is not None:
            self.result.device_timeline = self._profiler.stop()
            self._profiler = None
            self._enter_timing(1)
            return
        samples = self._sampler.stop() if self._sampler is not None else None
        self._sampler = None
        steps = self._profiler.stop()[first:]
        marks = self._profiler.step_starts_ns()[first:]
        self._profiler = None
        if samples is None:
            self.result.profiled += steps
            if len(self.result.profiled) < self._profiled_wanted and full:
                self._enter(PROFILE, self._profiled_wanted - len(self.result.profiled) + first)
                self._start_profiling(sample=False)
                return
            if self.result.unrecorded:
                self.result.recorded = ops_of_profile(self.result.profiled[-1])
            self._enter_timing(1)
            return
        for raw, begin in zip(steps, marks):
            inside = [
                LineSample(s.time_ns - begin, s.line)
                for s in samples
                if 0 <= s.time_ns - begin < raw.length_ns
            ]
            self.result.sampled.append((raw, inside))
        self._enter(DONE, 0)
