"""A script, run through every phase of a session while it does what it always does."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from gobrrr.capture.call_watch import CallWatch
from gobrrr.capture.device_profile import device_in_use
from gobrrr.capture.farewell import heard_before_it_leaves
from gobrrr.capture.generated_kernels import kernels_built_to_be_seen
from gobrrr.capture.measurements import FEWEST_STEPS, Agree, Measurements, Plan
from gobrrr.capture.script import Script, ScriptExit, StopScript, run_script
from gobrrr.capture.session import DONE, Session
from gobrrr.capture.steps import MODULE, StepWatcher, TrainingCalls
from gobrrr.measure.load import family_ns
from gobrrr.timeline.errors import GobrrrError
from gobrrr.timeline.quantities import time_text

# Called with what was measured as soon as it was, while the script's objects live.
OnMeasured = Callable[[Measurements, StepWatcher], None]
NO_STEP = (
    "the script ran no step that gobrrr can detect: no optimizer step, no nn.Module call, no "
    "gobrrr.step() block. Put `with gobrrr.step():` around the body of its loop."
)
SEVERAL_THREADS = (
    "the script's steps end in several threads by turns, and gobrrr follows the loop of one. Put "
    "`with gobrrr.step():` around the body of one thread's loop."
)
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
    agree: Agree | None = None,
    *,
    stop: bool,
    if_raised: bool = True,
) -> ScriptEnd:
    """Run a script to its end and measure its steps on the way.

    ``on_measured`` is called once, inside the script's loop; the script then runs on at full speed
    (``stop`` ends it there; with ``if_raised`` it is called once more where the script has raised
    before that, with what there is). ``agree``: as ``Session`` takes it, for a rank of a job. A
    ``GobrrrError`` that it raises is the problem: the script is not to blame, and runs on.
    """
    run = _Run(plan, on_measured, stop, progress, agree)
    run.watcher.install()
    # Of a job the others would wait for what this rank says.
    heard = contextlib.nullcontext() if agree else heard_before_it_leaves(run.leave)
    try:
        with kernels_built_to_be_seen(), heard:
            ended = run_script(script, argv)
    finally:
        run.end()
    ran_on = run.concluded and not stop
    if not ended.raised:
        run.conclude_early()
    elif agree is None and if_raised:
        # A launcher ends all ranks once one has raised: there it is too late to tell anything.
        run.conclude_raised(ended.error)
    return ScriptEnd(ended, run.problem, run.too_few_steps, ran_on)


class _Run:
    """Connects the step watcher to the session, and concludes when the session is done."""

    def __init__(
        self,
        plan: Plan,
        on_measured: OnMeasured,
        stop: bool,
        progress: Callable[[str, int, int], None],
        agree: Agree | None,
    ) -> None:
        self._on_measured = on_measured
        self._stop = stop
        calls = CallWatch()
        self.watcher = StepWatcher(self._on_boundary, calls)
        self.session = Session(
            plan,
            on_phase=progress,
            find_device=device_in_use,
            agree=agree,
            calls=calls,
            on_settled=self.watcher.settle,
        )
        self.concluded = False
        self.problem: str | None = None
        self.too_few_steps = False
        self._others_ns = family_ns()
        self._alone = agree is None
        self._training = TrainingCalls()

    def _on_boundary(self, source: str, restarted: bool) -> None:
        try:
            if source == MODULE and not self._alone and self._training.unfinished():
                return
            self._step_ended(source, restarted)
        except Exception as error:  # ours, not the script's, which runs on
            if self.concluded and isinstance(error, OSError):
                # Who reads the report is gone, or a disk is full: told as everywhere.
                raise
            self._do_without(error)

    def _do_without(self, error: Exception) -> None:
        """Go on without what the present phase gives, or not at all: its code has failed."""
        why = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        with contextlib.suppress(Exception):
            if not self.concluded and self.session.go_on_without(why):
                return
        traceback.print_exception(error)
        self.concluded = True
        self.problem = (
            "gobrrr failed while it measured the script's steps. This is a bug in gobrrr, not in "
            f"the script, which runs on: {why}"
        )
        for leave in (self.watcher.remove, self.session.abandon):
            with contextlib.suppress(Exception):
                leave()

    def _step_ended(self, source: str, restarted: bool) -> None:
        if restarted:
            self.session.restart()
        if self.session.boundary(source):
            self.watcher.remove()
            self._conclude()
            if self._stop:
                raise StopScript

    def end(self) -> None:
        """No step comes any more; what was measured stays readable."""
        self.watcher.remove()
        self.session.salvage()
        self.session.abandon()

    def leave(self) -> None:
        """The script ends here and now: what there is is told at once."""
        if self.concluded:
            return
        self.end()
        self.conclude_early()
        if self.problem:
            print(f"gobrrr: {self.problem}", file=sys.stderr, flush=True)

    def conclude_raised(self, error: BaseException | None) -> None:
        """The same of a script that raised: a defect of ours may not take its error's place."""
        try:
            self.conclude_early(error)
        except Exception as ours:
            traceback.print_exception(ours)
            self.problem = f"gobrrr failed to tell what it had measured: {ours}"

    def conclude_early(self, error: BaseException | None = None) -> None:
        """Use what there is of a script that ended too soon, or say what is missing.

        ``error``: what it raised, if anything.
        """
        if self.concluded:
            return
        measured = self.session.result
        if not measured.source:
            others_ns = family_ns() - self._others_ns
            # Of a job the other ranks would count.
            elsewhere = self._alone and others_ns > WORK_OF_OTHERS_NS
            time = time_text(others_ns * 1e-9)
            self.problem = STEPS_ELSEWHERE.format(time) if elsewhere else NO_STEP
            return
        timed = len(measured.all_plain_ns)
        profiled = len(measured.profiled)
        if measured.device_timeline is not None:
            profiled = len(measured.device_timeline.steps)
        if timed >= FEWEST_STEPS and profiled >= 1 and measured.recorded is not None:
            how = "" if error is None else f" with an error ({type(error).__name__})"
            measured.notices.append(
                f"The script ended{how} during {self.session.phase}: {timed} steps timed, "
                f"{profiled} profiled."
            )
            self._conclude()
            return
        if self.watcher.thread_changes > timed:
            self.problem = SEVERAL_THREADS
            return
        self.too_few_steps = True
        self.problem = (
            f"the script ended during {self.session.phase}: too few steps to diagnose. "
            "About 40 are enough."
        )

    def _conclude(self) -> None:
        self.concluded = True
        measured = self.session.result
        if self.session.phase == DONE and not (measured.profiled or measured.device_timeline):
            self.problem = " ".join(measured.notices) or "no step could be profiled"
            return
        try:
            self._on_measured(measured, self.watcher)
        except GobrrrError as error:
            self.problem = str(error)
