"""The measurement itself, driven by step boundaries: warm up, time, record, profile, sample, time.

The first timed steps come before anything was attached to the program: what a recorder and a
profiler allocate moves the top of the heap, and pages that the program alone gives back and faults
in again at every step may then stay.

One state machine for every kind of target. A script calls ``boundary`` from hooks, a function from
a plain loop. Each phase is a whole number of steps; what a phase costs is never in another's time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, Any

from gobrrr.live.bare_steps import SHORT_STEP_S, BareSteps
from gobrrr.live.measurements import (
    BY_DISPATCH,
    LONG_STEP_S,
    MANY_OPS,
    MOST_OPS_OF_PROFILER,
    PROFILED_STEPS,
    VERY_LONG_STEP_S,
    Agree,
    Measurements,
    Plan,
    bare_steps_planned,
    device_steps_sampled,
    few_steps_notices,
    fills_profile,
    plain_steps_planned,
    profiled_steps_planned,
    steps_affordable,
    steps_discarded,
    steps_for_mean,
    unrecorded_notice,
)
from gobrrr.live.profiles.generated_kernels import generated_kernel_sources
from gobrrr.live.timed_block import TimedBlock
from gobrrr.live.warm_up import WarmUp
from gobrrr.live.watch.call_watch import CallWatch
from gobrrr.live.window_log import WindowLog
from gobrrr.measure.thread_effort import EffortOfSteps
from gobrrr.timeline.step_kinds import PLAIN, PROFILED, RECORDED, WARM

if TYPE_CHECKING:
    from gobrrr.live.profiling import Profiling

WARMUP, RECORD, TIME, PROFILE, SAMPLE, DONE = (
    "warm-up", "recording ops", "timing", "profiling", "sampling lines", "done",
)  # fmt: skip


# A device that is idle for less of its steps is not waiting for lines of Python.
LEAST_IDLE = 0.01
# Timed steps after which it is asked whether the time allows for more.
ASKED_EVERY = 4

# Imported when they are first used: what they bring would be in the program's heap before that.


def _recorder(roots: Any) -> Any:
    from gobrrr.observe.op_recorder import OpRecorder

    return OpRecorder(roots)


def _host_profiler() -> Any:
    from gobrrr.live.profiles.profile import HostProfiler

    return HostProfiler()


def _dispatch_profiler() -> Any:
    from gobrrr.live.profiles.dispatch_profile import DispatchProfiler

    return DispatchProfiler()


def _idle_share(timeline: Any) -> float:
    """``device_profile.idle_share``."""
    from gobrrr.live.profiles.device_profile import idle_share

    return idle_share(timeline)


def _sampler(thread: int) -> Any:
    from gobrrr.observe.sampler import LineSampler

    return LineSampler(thread)


class Session:
    """Runs the phases. ``boundary`` is called at each step's end, in the thread of the loop.

    ``on_phase(phase, done, wanted)`` reports progress. ``agree(what, figures)`` gives the largest
    of each figure among the ranks of a job, so that all of them take the same steps for each phase.
    ``calls``, ``on_settled``: as ``WindowLog`` takes them. ``begin_bare``: of a ``StepWatcher``.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        clock: Callable[[], int] = time.perf_counter_ns,
        on_phase: Callable[[str, int, int], None] = lambda phase, done, wanted: None,
        modules: dict[str, Any] | None = None,
        make_recorder: Callable[[Any], Any] = _recorder,
        make_profiler: Callable[[], Any] = _host_profiler,
        make_sampler: Callable[[int], Any] = _sampler,
        find_device: Callable[[], Any] = lambda: None,
        agree: Agree | None = None,
        calls: CallWatch | None = None,
        on_settled: Callable[[], None] = lambda: None,
        begin_bare: Callable[[int, float], BareSteps | None] = lambda wanted, step_s: None,
    ) -> None:
        self._plan, self._agree = plan, agree or (lambda what, own: own)
        self._log = WindowLog(calls, on_settled, plan.recorded, of_ranks=plan.of_ranks)
        self._clock, self._on_phase = clock, on_phase
        self._modules, self._make_recorder = modules, make_recorder
        self._given_profiler, self._make_sampler = make_profiler, make_sampler
        self._find_device, self._begin_bare = find_device, begin_bare
        self._device: Any = None
        self._profiling: Profiling | None = None
        self._recorder: Any = None
        self._begin()

    def _begin(self) -> None:
        self.result = Measurements()
        self._make_profiler, self.phase = self._given_profiler, WARMUP
        self._warm_up = WarmUp(self._plan, self.result.warmup_ns)
        self._wanted = self._warm_up.wanted
        self._steps_in_phase = self._block = self._profiled_wanted = 0
        self._timed: TimedBlock | None = None
        self._bare: BareSteps | None = None
        self._bare_wanted = 0
        self._since_ns: int | None = None
        self._effort = EffortOfSteps()
        self._agreed_s: float | None = None
        self._ops, self._varying, self._may_sample = 0, False, True
        self._log.begin(self.result)
        self._after_recording: Callable[[], None] = self._profile_recorded
        self._after_profiling: Callable[[], None] = self._record_more_or_time
        self._after_sampling: Callable[[], None] = lambda: self._enter_timing(1)
        self._after_timing: Callable[[], None] = self._complete

    @property
    def done(self) -> bool:
        """Whether all phases are over."""
        return self.phase == DONE

    @property
    def watches(self) -> bool:
        """Whether something of gobrrr's is attached to the step that runs now."""
        return self._recorder is not None or self._profiling is not None

    def restart(self) -> None:
        """Forget everything: what a step is has changed."""
        self.abandon()
        self._begin()

    def thread_changed(self) -> None:
        """The loop goes on in another thread, the one before having ended: what it gave counts.

        The step that began there does not. What is attached to one thread is attached anew.
        """
        if self._device is not None:
            self.restart()
            return
        self._since_ns, self.result.thread = None, threading.get_ident()
        self._effort.stop()
        if self._profiling is not None:
            self._take_profiled(cut=True)
        elif self._recorder is not None:
            self.abandon()
            self._start_recording()

    def salvage(self) -> None:
        """The program has ended: keep the steps that were timed and profiled so far."""
        self._log.closed(self._since_ns, RECORDED if self.watches else PLAIN)
        if self._timed is not None:
            self._timed.cut_short(self.result)
        profiling = self._profiling if self.phase == PROFILE and self._device is None else None
        if profiling is not None and self._steps_in_phase >= 2:
            profiling.put_into(self.result, 1)
            self.result.generated = generated_kernel_sources()
            self._profiling = None

    def abandon(self) -> None:
        """Stop whatever is running; results so far stay readable."""
        profiling, recorder = self._profiling, self._recorder
        self._profiling = self._recorder = self._bare = None
        self._effort.stop()
        if recorder is not None:
            recorder.stop()
        if profiling is not None:
            profiling.abandon()

    def forked(self) -> None:
        """In a process that the program has forked: nothing is recorded there."""
        recorder, self._recorder, self._profiling = self._recorder, None, None
        if recorder is not None:
            recorder.stop()
        self.phase = DONE

    def go_on_without(self, why: str) -> bool:
        """Do without what the present phase gives: the step fails while it is watched so.

        The step that failed is over and is not measured. False if nothing is left to do instead.
        """
        phase, device = self.phase, self._device
        self.abandon()
        self._since_ns = None
        if phase == RECORD:
            if not self.result.recorded_steps:
                self.result.unrecorded = True
                self.result.notices.insert(0, unrecorded_notice(why, device is not None))
            self._after_recording()
            return True
        if phase == PROFILE and device is None and not self.result.by_dispatch:
            if self.result.unrecorded:
                return False
            self._time_through_dispatcher(f"The step fails under torch's profiler ({why})")
            self._start_profiling(PROFILE, self._profiled_wanted + 1)
            return True
        if phase == SAMPLE:
            self.result.notices.append(f"Python time has no source lines: sampling failed ({why}).")
            self._may_sample = False
            self._after_sampling()
            return True
        return False

    def boundary(self, source: str) -> None:
        """One step has ended."""
        now = self._clock()
        if self.done:
            return
        self.result.source, self.result.thread = source, threading.get_ident()
        if self._bare is not None:
            self._bare_ended(self._bare)
            self._since_ns = self._clock()
            return
        phase = {TIME: PLAIN, PROFILE: PROFILED, SAMPLE: PROFILED}.get(self.phase, WARM)
        self._log.ended(self._since_ns, now, RECORDED if self._recorder else phase)
        if self._since_ns is not None:
            if self.phase == TIME:
                for effort in self._effort.of_step(now - self._since_ns):
                    self.result.efforts[self._log.last] = effort
            self._step_ended(now - self._since_ns)
        self._on_phase(self.phase, self._steps_in_phase, self._wanted)
        if self.phase == TIME:
            self._effort.step_begins(first=self._steps_in_phase == 0)
        self._since_ns = self._clock()

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
            self.result.notices += few_steps_notices(self._plan, self.result, self._measured_s())
        if self.phase == PROFILE and phase != PROFILE:
            self.result.generated = generated_kernel_sources()
        self.phase, self._wanted, self._steps_in_phase = phase, wanted, 0

    def _warmup_ended(self, length_ns: int) -> None:
        more = self._warm_up.wants_more(length_ns)
        agreed = self._agree(WARMUP, {"more": float(more), "step_s": self._measured_s()})
        self._agreed_s = agreed["step_s"]
        if agreed["more"]:
            self._wanted = max(self._warm_up.wanted, len(self.result.warmup_ns) + 1)
            return
        self._enter_timing(0)

    def _start_recording(self) -> None:
        self._enter(RECORD, 1)
        self._recorder = self._make_recorder(self._modules or self._log.roots())
        try:
            self._recorder.start()
        except NotImplementedError as error:
            self.go_on_without(str(error))

    def _record_ended(self) -> None:
        if self._recorder is not None:
            self._log.keep(self._recorder.stop())
            self.result.see_recorder(self._recorder)
            self._recorder = None
            if self._any(RECORD, self._log.wants_more_recorded(self._affords_more())):
                self._start_recording()
                return
            if self._step_s() <= LONG_STEP_S:
                # One passes unmeasured: the recorded one left caches and the allocator changed.
                self._wanted = self._steps_in_phase + 1
                return
        self._after_recording()

    def _any(self, what: str, wanted: int) -> int:
        return int(self._agree(what, {"more": float(wanted)})["more"])

    def _affords_more(self) -> bool:
        return len(self.result.recorded or ()) <= MANY_OPS and self._step_s() <= LONG_STEP_S

    def _step_s(self) -> float:
        return self._measured_s() if self._agreed_s is None else self._agreed_s

    def _measured_s(self) -> float:
        return max(1e-9, median(self.result.timed_ns or self.result.warmup_ns[-3:]) * 1e-9)

    def _enter_timing(self, block: int, more: int = 0) -> None:
        # A program may first touch a device in a later step than its first ones.
        self._device = self._device or self._find_device()
        self._block = block
        planned = plain_steps_planned(self._plan, self._step_s(), self._varying)[block]
        self._enter(TIME, more or planned)
        self._timed = TimedBlock(self._device, block)
        # The first block whole, as it is short; of the second the last steps.
        wanted = planned if block == 0 else bare_steps_planned(planned)
        self._bare_wanted = 0 if more or not self._may_be_bare() else wanted
        if block == 0:
            self._start_bare()

    def _start_bare(self) -> bool:
        wanted, self._bare_wanted = self._bare_wanted, 0
        self._bare = self._begin_bare(wanted, self._step_s()) if wanted else None
        if self._bare is not None and self._timed is not None:
            self._timed.go_on_bare(self._bare)
        return self._bare is not None

    def _may_be_bare(self) -> bool:
        # Who asks for so many steps has so many, of one kind.
        alone = not self._plan.of_ranks and self._plan.steps is None
        return alone and self._step_s() <= SHORT_STEP_S and self._log.alike()

    def _bare_ended(self, bare: BareSteps) -> None:
        self._bare = None
        self._log.skipped()
        assert self._timed is not None
        self._timed.end(self.result)
        self._steps_in_phase += len(self.result.bare[self._block].lengths_ns)
        self._on_phase(self.phase, self._steps_in_phase, self._wanted)
        # What has become much longer is over early. After a surprise the calls tell what steps are.
        if bare.surprised:
            self._timed = TimedBlock(self._device, self._block)
        else:
            self._timing_over()

    def _time_ended(self, length_ns: int) -> None:
        self.result.plain_ns[self._block].append(length_ns)
        self.result.plain_windows[self._block].append(self._log.last)
        assert self._timed is not None
        self._timed.mark()
        # Asked now and then: it adds up all steps so far.
        asked = self._steps_in_phase % ASKED_EVERY == 0
        afforded = not asked or steps_affordable(self._plan, self.result) > 0
        if self._steps_in_phase < self._wanted - self._bare_wanted and afforded:
            return
        if afforded and (self._start_bare() or self._steps_in_phase < self._wanted):
            return
        self._timing_over()

    def _timing_over(self) -> None:
        assert self._timed is not None
        self._timed.end(self.result)
        if self._block == 0:
            own = {"step_s": self._measured_s(), "varying": float(self._log.varying())}
            agreed = self._agree(TIME, own)
            self._agreed_s, self._varying = agreed["step_s"], bool(agreed["varying"])
            self._start_recording()
        else:
            self._after_timing()

    def _profile_recorded(self) -> None:
        """Profile steps of so many ops as were recorded."""
        before, self._device = self._device, self._device or self._find_device()
        if self._device is not before:
            # The steps before it came into use were timed by the host's clock.
            self.result.plain_ns[0].clear()
            self.result.plain_windows[0].clear()
            self.result.bare.clear()
        own = {"ops": float(len(self.result.recorded or ()))}
        self._ops = int(self._agree(PROFILE, own)["ops"])
        if self._ops > MOST_OPS_OF_PROFILER and self._device is None:
            self._time_through_dispatcher(
                f"{self._ops:,} ops per step are more than torch's profiler can hold in memory"
            )
        self._profiled_wanted = self._profiled_planned()
        self._start_profiling(PROFILE, self._profiled_wanted + self._discarded())

    def _profiled_planned(self) -> int:
        return profiled_steps_planned(self._plan, self._step_s(), self._ops, self._varying)

    def _complete(self) -> None:
        """What is missing of the steps that turned out to be the usual ones; then the lines."""
        if self._device is None:
            self._after_recording = self._after_profiling = self._complete
            if self._any(RECORD, self._log.lacks_recorded(self._affords_more())):
                self._start_recording()
                return
            if self._any(PROFILE, self._log.lacks_profiled()):
                more = min(PROFILED_STEPS, self._profiled_planned())
                self._profiled_wanted = len(self.result.profiled) + more
                self._start_profiling(PROFILE, more + self._discarded())
                return
            self._after_sampling = self._time_more
            self._sample_or(self._time_more, not self._log.knows_lines())
            return
        # A second profile may leave later steps slower: after all that are timed.
        self._after_sampling = lambda: self._enter(DONE, 0)
        self._time_more()

    def _sample_or(self, go_on: Callable[[], None], wanted: bool) -> None:
        """Sample lines if they are ``wanted`` and can be had, or ``go_on``."""
        can = self._step_s() <= VERY_LONG_STEP_S
        if can and self._any(SAMPLE, wanted and self._may_sample):
            steps = 1 if self._device is None else device_steps_sampled(self._step_s(), self._ops)
            self._start_profiling(SAMPLE, steps + 2 * self._discarded())
        else:
            go_on()

    def _record_more_or_time(self) -> None:
        """After the profiled steps: if they do different things, one recorded step is too few."""
        # Before the long block of timed steps: a short program may not live to its end.
        # Steps that differ are sampled after it, when it is known which are the usual ones.
        self._after_recording = lambda: self._sample_or(self._after_sampling, not self._varying)
        too_few = self._device is None and self._log.one_is_too_few(self._affords_more())
        self._start_recording() if self._any(RECORD, too_few) else self._after_recording()

    def _time_more(self) -> None:
        """Of steps that differ in size as many as a mean over them takes; then all is over."""
        self._after_timing = self._lines_of_device
        more = self._varying and self._any("mean", steps_for_mean(self._plan, self.result))
        self._enter_timing(1, more) if more else self._after_timing()

    def _lines_of_device(self) -> None:
        """The last thing, where a device waits for the host; lines of a processor are known."""
        if self._device is None:
            self._enter(DONE, 0)
            return
        timeline = self.result.device_timeline
        waits = timeline is not None and _idle_share(timeline) > LEAST_IDLE
        self._sample_or(self._after_sampling, waits)

    def _discarded(self) -> int:
        return steps_discarded(self._step_s(), self._ops, device=self._device is not None)

    def _start_profiling(self, phase: str, wanted: int, *, own_profiler: bool = False) -> None:
        self._enter(phase, wanted)
        self.result.see_groups()
        try:
            make = self._device.make_profiler if self._device else self._make_profiler
            if make is not _dispatch_profiler:
                self._log.refuse_second_profiler(own_profiler)
            self._profiling = self._log.profiling(make(), self._step_s())
            self._profiling.start()
        except RuntimeError as error:
            if self._device is None and not self.result.by_dispatch:
                self._time_through_dispatcher(f"{error}, and only one can run at a time")
                self._profiling = self._log.profiling(_dispatch_profiler(), self._step_s())
                self._profiling.start()
            else:
                self._profiling = None
                if phase == PROFILE:
                    self.result.not_profiled(str(error))
                self._enter(DONE, 0)
                return
        if phase == SAMPLE:
            self._profiling.sample_with(self._make_sampler(self.result.thread))

    def _time_through_dispatcher(self, why: str) -> None:
        self.result.notices.append(f"{why[0].upper()}{why[1:]}: {BY_DISPATCH}")
        self.result.by_dispatch = True
        self._make_profiler = _dispatch_profiler

    def _profile_ended(self) -> None:
        if self._profiling is None or self._profiling.interrupted:
            self.abandon()
            if self.phase == SAMPLE and self._device is not None:
                self._after_sampling()
                return
            self._start_profiling(PROFILE, self._profiled_wanted + 1, own_profiler=True)
            return
        self._profiling.mark(self._log.last)
        full = self._profiling.cut or fills_profile(self._steps_in_phase + 1, self._ops)
        some = self._profiling.cut or self._steps_in_phase > self._discarded()
        if self._steps_in_phase < self._wanted and not (full and some):
            return
        if self._device is None:
            self._take_profiled(cut=full)
            return
        again = self._profiling.put_timeline_into(self.result)
        self._profiling = None
        if not self._any("device", not self._device.left_alone_in(self.result)):
            self._find_device, self._device = (lambda: None), None
            self.restart()
            return
        if self.phase == PROFILE and self._any("again", again):
            self._start_profiling(PROFILE, self._wanted)
            return
        self._enter_timing(1) if self.phase == PROFILE else self._after_sampling()

    def _take_profiled(self, *, cut: bool) -> None:
        """The steps in a row that were profiled are over; ``cut``: perhaps before all wanted."""
        profiling, self._profiling, first = self._profiling, None, self._discarded()
        taken = profiling.put_into(self.result, first) if profiling is not None else 0
        why = "" if taken else self._log.cut_again(profiling)
        if self.phase == SAMPLE:
            again = cut and not (taken or why)
            self._start_profiling(SAMPLE, self._wanted) if again else self._after_sampling()
            return
        if why:
            self._time_through_dispatcher(why)
        more = self._profiled_wanted - len(self.result.profiled)
        if more > 0 and cut:
            self._start_profiling(PROFILE, more + first)
            return
        if self.result.unrecorded:
            from gobrrr.live.profiles.unrecorded import ops_of_profile

            self.result.recorded = ops_of_profile(self.result.profiled[-1])
        self._after_profiling()
