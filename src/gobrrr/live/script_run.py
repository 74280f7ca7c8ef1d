"""A script, run through every phase of a session while it does what it always does."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

from gobrrr.live.accelerators import known_backends
from gobrrr.live.farewell import heard_before_it_leaves, told_to_its_end
from gobrrr.live.import_hook import when_imported
from gobrrr.live.measurements import FEWEST_STEPS, STEADY_STEPS, Measurements, Plan
from gobrrr.live.profiles.generated_kernels import kernels_built_to_be_seen
from gobrrr.live.rank_of_job import RankOfJob
from gobrrr.live.script import Script, ScriptExit, StopScript, run_script
from gobrrr.live.session import DONE, PROFILE, SAMPLE, Session
from gobrrr.live.step_words import optimizer_steps, phrase, sentence
from gobrrr.live.steps import MODULE, StepWatcher, TrainingCalls
from gobrrr.live.training_signs import AwaitedTraining, OptimizersMade
from gobrrr.live.watch.call_watch import CallWatch
from gobrrr.live.watch.fused_optimizers import has_fused
from gobrrr.measure.deferred_signals import signals_deferred
from gobrrr.measure.load import family_ns
from gobrrr.observe.compiler_counters import graphs_compiled
from gobrrr.observe.optimizer_hooks import around_optimizer_steps
from gobrrr.timeline.errors import GobrrrError, UserCodeError
from gobrrr.timeline.quantities import time_text

# Called with what was measured as soon as it was, while the script's objects live.
OnMeasured = Callable[[Measurements, StepWatcher], None]
NO_STEP = (
    "the script ran no step that gobrrr can detect: no optimizer step, no nn.Module call, no "
    "gobrrr.step() block. Put `with gobrrr.step():` around the body of its loop."
)
NO_SUCH_STEP = (
    "--step {} names no step that the script ran{}. It may name optimizer, call or a module, by "
    "its class or variable; modules that the script called from outside any other: {}."
)
NO_SUCH_STEP_YET = (
    "gobrrr: --step {} names no step that the script has run so far{}. It may name optimizer, call "
    "or a module, by its class or variable; modules called so far from outside any other: {}."
)
LATER = (
    "gobrrr: {} came after the diagnosis, which is of calls of a module: --step optimizer waits "
    "for them."
)
SEVERAL_THREADS = (
    "the script's steps end in several threads, by turns or few in each, and gobrrr follows the "
    "loop of one. Put `with gobrrr.step():` around the body of one loop: of the thread that hands "
    "out the work, or of one that does it; or diagnose the function that each of them runs (gobrrr "
    "run SCRIPT:FUNCTION)."
)
# Steps of a warm-up among those that are enough.
USUAL_WARM_UP, ENOUGH = 2 * STEADY_STEPS, 40
# Processes of the script that worked for longer than this may be where its steps run.
WORK_OF_OTHERS_NS = 500_000_000
STEPS_ELSEWHERE = (
    "the script ran no step that gobrrr can detect in its own process; those that it started "
    "worked for {}, and gobrrr does not look into them. Have a launcher start them instead "
    "(torchrun --nproc-per-node N -m gobrrr run SCRIPT), or diagnose the function that each of "
    "them runs (gobrrr run SCRIPT:FUNCTION)."
)


@dataclass(frozen=True)
class ScriptEnd:
    """How a script ended, and why its steps were not measured (``None``: they were).

    ``too_few_steps``: fewer than the plan needs, which is the reason. ``ran_on``: its steps were
    measured long before it ended.
    """

    exit: ScriptExit
    problem: str | None
    too_few_steps: bool = False
    ran_on: bool = False


def measure_script(
    script: Script,
    argv: list[str],
    plan: Plan,
    on_measured: OnMeasured,
    progress: Callable[[str, int, int], None],
    rank: RankOfJob | None = None,
    *,
    stop: bool,
    if_raised: bool = True,
    step: str = "",
    threads: int | None = None,
) -> ScriptEnd:
    """Run a script to its end and measure its steps on the way.

    ``on_measured`` is called once, inside the script's loop; the script then runs on at full speed
    (``stop`` ends it there; with ``if_raised`` it is called once more where the script has raised
    before that, with what there is). A ``GobrrrError`` that it raises is the problem: the script is
    not to blame, and runs on. ``rank``: what the process is in a job. ``step``: what a step is
    (``optimizer``, ``call``, the name of a module), where the user says it. ``threads`` of torch
    are set as soon as the script imports it.
    """
    forget = when_imported("torch", lambda: set_threads(threads))
    run = _Run(plan, on_measured, stop, progress, rank or RankOfJob(None), step, script.code)
    run.watcher.install()
    try:
        with kernels_built_to_be_seen(), heard_before_it_leaves(run.leave):
            ended = run_script(script, argv)
            ran_on = run.concluded and not stop
            # A launcher asks all ranks to end once one has.
            with told_to_its_end():
                run.is_over(ended, if_raised)
    finally:
        forget()
        run.end()
    return ScriptEnd(ended, run.problem, run.too_few_steps, ran_on)


def set_threads(threads: int | None) -> None:
    """Of PyTorch's, so many in this process; ``None``: as many as there are."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def _device_in_use() -> Any:
    """The GPU, if the program has put something on it (``device_profile``); ``None`` on a CPU."""
    if known_backends() is None:
        return None
    from gobrrr.live.profiles.device_profile import device_in_use

    return device_in_use()


class _Run:
    """Connects the step watcher to the session, and concludes when the session is done."""

    def __init__(
        self,
        plan: Plan,
        on_measured: OnMeasured,
        stop: bool,
        progress: Callable[[str, int, int], None],
        rank: RankOfJob,
        step: str,
        code: CodeType,
    ) -> None:
        self._on_measured = on_measured
        self._stop = stop
        self._progress = progress
        self._rank = rank
        calls = CallWatch()
        self.watcher = StepWatcher(self._on_boundary, calls, step)
        self._step = step
        # The phase in which it was last asked what the steps' objects are called.
        self._named_in = ""
        self.session = Session(
            plan,
            on_phase=self._phase,
            find_device=_device_in_use,
            agree=rank.agree,
            calls=calls,
            on_settled=self.watcher.settle,
            begin_bare=self.watcher.begin_bare,
        )
        calls.profilers.before_start = self._profiler_starts
        self.watcher.may_turn = rank.job is None
        self.watcher.on_other_steps = self._other_steps
        self.watcher.on_unmatched = self._unmatched
        self.watcher.on_fork = self._forked
        self._measures = False
        self.concluded = False
        self.problem: str | None = None
        self.too_few_steps = False
        self._others_ns = family_ns()
        self._alone = rank.job is None
        self._ended = False
        self._training = TrainingCalls()
        optimizers = OptimizersMade()
        self._unwatch = optimizers.watch()
        self._awaited = AwaitedTraining(optimizers, code, stops=stop)
        self._later = 0
        self._unwatch_later: Callable[[], None] = lambda: None
        # What was measured of calls, and what these are, while an optimizer's step is awaited.
        self._provisional: tuple[Measurements, str] | None = None

    def _phase(self, phase: str, done: int, wanted: int) -> None:
        if phase != self._named_in:
            self._named_in = phase
            self.watcher.see_names()
        self._progress(phase, done, wanted)

    def _on_boundary(self, source: str, restarted: bool) -> None:
        with signals_deferred():
            self._boundary(source, restarted)

    def _boundary(self, source: str, restarted: bool) -> None:
        self._measures = True
        try:
            alone = self._alone or self._step
            if source == MODULE and not alone and self._training.unfinished():
                return
            self._step_ended(source, restarted)
        except Exception as error:  # ours, not the script's, which runs on
            if self.concluded and isinstance(error, OSError):
                # Who reads the report is gone, or a disk is full: told as everywhere.
                raise
            self._do_without(error)
        finally:
            self._measures = False

    def _other_steps(self) -> None:
        """What is attached is of no use any more: it ends inside the program's own call."""
        with signals_deferred(), contextlib.suppress(Exception):
            self.session.abandon()

    def _unmatched(self) -> None:
        """Said long before the script's end, and no more than said: such steps may come yet."""
        if self._rank.job is None or self._rank.job.rank == 0:
            print(self._no_such_step(NO_SUCH_STEP_YET), file=sys.stderr, flush=True)

    def _no_such_step(self, sentence: str) -> str:
        near = ", ".join(self.watcher.near_names())
        called = ", ".join(sorted(self.watcher.modules_called())) or "none"
        return sentence.format(self._step, f" (did you mean {near}?)" if near else "", called)

    def _forked(self) -> None:
        with contextlib.suppress(Exception):
            self.session.forked()

    def _profiler_starts(self) -> None:
        """A profiler is about to start: if it is the program's, gobrrr's would end with it.

        Whichever is then stopped second crashes the process.
        """
        running = self.session.phase in (PROFILE, SAMPLE) and not self.session.result.by_dispatch
        if running and not self._measures:
            self.session.abandon()

    def _do_without(self, error: Exception) -> None:
        """Go on without what the present phase gives, or not at all: its code has failed."""
        why = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        with contextlib.suppress(Exception):
            if not self.concluded and self.session.go_on_without(why):
                return
        self.concluded = True
        if isinstance(error, UserCodeError):
            # The program's own failure, which showed first where gobrrr waited for the device.
            self.problem = f"The measurement of the script's steps was given up: {error}"
        else:
            traceback.print_exception(error)
            self.problem = (
                "gobrrr failed while it measured the script's steps. This is a bug in gobrrr, not "
                f"in the script, which runs on: {why}"
            )
        for leave in (self.watcher.remove, self.session.abandon):
            with contextlib.suppress(Exception):
                leave()

    def _step_ended(self, source: str, restarted: bool) -> None:
        import torch

        moved, self.watcher.moved = self.watcher.moved, False
        if restarted and (not self.session.done or self._provisional is not None):
            self.session.restart()
        elif moved and not self.session.done:
            self.session.thread_changed()
        self.session.boundary(source)
        if not self.session.done:
            return
        if source == MODULE and self._alone and not self._step and self._awaited.goes_on():
            if self._provisional is None or self._provisional[0] is not self.session.result:
                self._provisional = self.session.result, phrase(self.watcher)
                self._progress("waiting for an optimizer's first step", 0, 0)
            self.watcher.forget_calls()
            return
        # What gobrrr does now would be in the trace of a profiler of the program's. Of a job the
        # other ranks wait for what this one has found.
        if self._alone and not self._stop and torch.autograd._profiler_enabled():
            self.watcher.forget_calls()
        else:
            self.watcher.remove()
            self._conclude()
            if self._stop:
                raise StopScript
            if source == MODULE and self._awaited.expected and not self._step:
                # It was awaited for long enough, and may come yet.
                self._unwatch_later = around_optimizer_steps(after=self._steps_later)

    def _steps_later(self, *_: Any) -> None:
        self._later += 1

    def end(self) -> None:
        """No step comes any more; what was measured stays readable."""
        if self._ended:
            return
        self._ended = True
        self._unwatch()
        self._unwatch_later()
        if self._later:
            print(LATER.format(optimizer_steps(self._later)), file=sys.stderr, flush=True)
        self.watcher.remove()
        # What came after the last phase is no part of what was measured.
        if not self.session.done:
            self.session.salvage()
            if self.watcher.unfinished:
                # What followed the last step trained, in steps of another kind.
                self.session.result.after_last = None
        self.session.abandon()

    def is_over(self, exit_: ScriptExit, if_raised: bool) -> None:
        """The script has ended: what there is is told, if it has not been."""
        self._rank.script_is_over(exit_)
        self.end()
        if not exit_.raised:
            self._conclude_early(exit_)
        elif if_raised:
            self._conclude_raised(exit_)

    def leave(self, exit_: ScriptExit) -> None:
        """The script ends here and now: the same at once."""
        self._rank.script_is_over(exit_)
        try:
            if not self.concluded:
                self.end()
                self._conclude_early(exit_)
                if self.problem and (self._rank.job is None or self._rank.job.rank == 0):
                    print(f"gobrrr: {self.problem}", file=sys.stderr, flush=True)
        finally:
            self._rank.leave()

    def _conclude_raised(self, exit_: ScriptExit) -> None:
        """A defect of ours may not take the place of the script's error."""
        try:
            self._conclude_early(exit_)
        except Exception as ours:
            traceback.print_exception(ours)
            self.problem = f"gobrrr failed to tell what it had measured: {ours}"

    def _conclude_early(self, exit_: ScriptExit) -> None:
        """Use what there is of a script that ended too soon, or say what is missing."""
        if self.concluded:
            return
        measured = self.session.result
        if not measured.source and self._step:
            self.problem = self._no_such_step(NO_SUCH_STEP)
            return
        if not measured.source and not self.watcher.thread_changes:
            others_ns = family_ns() - self._others_ns
            # Of a job the other ranks would count.
            # A compiler's own workers are none of the program's.
            compiled = graphs_compiled() > 0
            elsewhere = self._alone and not compiled and others_ns > WORK_OF_OTHERS_NS
            time = time_text(others_ns * 1e-9)
            self.problem = STEPS_ELSEWHERE.format(time) if elsewhere else NO_STEP
            return
        if self.session.done:
            self._conclude()
            return
        timed = len(measured.timed_ns)
        profiled = len(measured.profiled)
        if measured.device_timeline is not None:
            profiled = len(measured.device_timeline.steps)
        if timed >= FEWEST_STEPS and profiled >= 1 and measured.recorded is not None:
            error = exit_.error
            how = "" if error is None else f" with an error ({type(error).__name__})"
            measured.notices.append(
                f"The script ended{how} during {self.session.phase}: {timed} steps timed, "
                f"{profiled} profiled."
            )
            self._conclude()
            return
        if self._provisional is not None:
            # Too few steps of an optimizer came after the calls that were measured.
            self._conclude(self._provisional[0])
            return
        if self.watcher.thread_changes > min(timed, ENOUGH):
            self.problem = SEVERAL_THREADS
            return
        self.too_few_steps = True
        warm_up = len(measured.warmup_ns)
        # Of steps that do not settle soon more than the usual few warm up.
        took = f" ({warm_up} of its steps were the warm-up)" if warm_up > USUAL_WARM_UP else ""
        self.problem = (
            f"the script ended during {self.session.phase}{took}: too few steps to diagnose. "
            f"About {ENOUGH + max(0, warm_up - USUAL_WARM_UP)} are enough."
        )

    def _step_is(self, measured: Measurements) -> str:
        """What a step was taken to be: the first thing that a report says."""
        watcher, provisional = self.watcher, self._provisional
        calls = provisional is not None and measured is provisional[0]
        said = provisional[1] if provisional is not None and calls else phrase(watcher)
        source = MODULE if calls else watcher.source
        later = ""
        if source == MODULE and watcher.optimizer_steps and not self._step:
            later = f"{optimizer_steps(watcher.optimizer_steps)} came later"
        elif provisional is not None and not calls:
            calls_said = provisional[1].removeprefix("one call of ")
            later = f"{watcher.ended[MODULE]:,} calls of {calls_said} came before"
        return sentence(said, watcher.ended[source], later)

    def _conclude(self, of_calls: Measurements | None = None) -> None:
        self.concluded = True
        measured = of_calls or self.session.result
        measured.step_is = self._step_is(measured)
        if self._provisional is not None and measured is self._provisional[0]:
            self.watcher.fall_back_to_calls()
        done = of_calls is not None or self.session.phase == DONE
        if done and not (measured.profiled or measured.device_timeline):
            self.problem = " ".join(measured.notices) or "no step could be profiled"
            return
        # torch's optimizers that have one take it as an argument.
        able = [has_fused(optimizer) for optimizer in self.watcher.optimizers]
        measured.fused_optimizer = any(able) if able else None
        try:
            with told_to_its_end():
                self._on_measured(measured, self.watcher)
        except GobrrrError as error:
            self.problem = str(error)
