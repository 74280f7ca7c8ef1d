"""Diagnose a program that runs here: a callable, a workload, a script or a module."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gobrrr.attribution.cpu_attributed import attributed_cpu
from gobrrr.attribution.cpu_run import (
    CpuAnalysis,
    Progress,
    analyse_cpu,
    silent,
)
from gobrrr.attribution.device import attribute_device
from gobrrr.attribution.device_attributed import attributed_device
from gobrrr.capture.compiler_counters import compiler_counters, counted_since
from gobrrr.capture.device_profile import device_in_use
from gobrrr.capture.generated_kernels import kernels_built_to_be_seen
from gobrrr.capture.script import (
    Script,
    ScriptExit,
    StopScript,
    load_module,
    load_script,
    run_script,
)
from gobrrr.capture.session import DONE, Measurements, Plan, Session
from gobrrr.capture.snapshot import Snapshot
from gobrrr.capture.steps import StepWatcher
from gobrrr.capture.workload import Workload, as_workload
from gobrrr.devices import ceilings_for_this_machine, identify
from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.assemble import assemble
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.fixes.fusion_sources import add_cpu_fusion, add_device_fusion
from gobrrr.pipeline.batch import double_batch
from gobrrr.pipeline.environment import describe_environment
from gobrrr.pipeline.progress import shown
from gobrrr.timeline.data import Device
from gobrrr.timeline.errors import DefectError, GobrrrError, InputError, UserCodeError
from gobrrr.work import work_of

OnAnalysis = Callable[[Diagnosis, "CpuAnalysis | None", StepWatcher], None]
# The fewest unprofiled steps that a step time is worth stating from.
FEWEST_STEPS = 2


def load_ceilings(*, refresh: bool, progress: Progress) -> Ceilings:
    """Ceilings of this machine for the threads torch uses now: cached, or measured."""
    import torch

    return ceilings_for_this_machine(
        kind="cpu",
        refresh=refresh,
        threads=torch.get_num_threads(),
        progress=lambda done, total, what: progress(f"ceilings: {what}", done, total),
    )


def this_device() -> Device:
    """The processor as a ``Device``."""
    found = identify("cpu")
    return Device(name=found.name, kind=found.kind, memory_bytes=found.memory_bytes)


@dataclass
class Diagnosed:
    """A diagnosis with the analysis behind it (for the batch test and for fixes)."""

    diagnosis: Diagnosis
    analysis: CpuAnalysis | None
    measured: Measurements


def measure_step(
    step: Callable[[], Any],
    plan: Plan,
    *,
    modules: dict[str, Any] | None = None,
    progress: Progress = silent,
) -> Measurements:
    """Run a callable through every phase. What it raises comes back as ``UserCodeError``."""
    session = Session(plan, on_phase=progress, modules=modules, find_device=device_in_use)
    result = None
    try:
        session.boundary("function")
        while not session.done:
            previous, result = result, None
            try:
                result = step()
            except Exception as error:
                whose = _whose(error, step, session)
                why = f"{type(error).__name__}: {error}".split("\n", 1)[0]
                if not (isinstance(whose, DefectError) and session.go_on_without(why)):
                    raise whose from error
            session.boundary("function")
            # Dropped after the step's end: freeing a result is not part of the next step.
            del previous
    finally:
        session.abandon()
    return session.result


def _whose(error: Exception, step: Callable[[], Any], session: Session) -> GobrrrError:
    """The step's own error, or gobrrr's: the same step runs once more with nothing attached."""
    phase, watched = session.phase, session.watches
    session.abandon()
    if watched and not isinstance(error, GobrrrError):
        try:
            step()
        except Exception as again:
            error = again
        else:
            return DefectError(
                f"gobrrr could not measure this step: while {phase} it failed with "
                f"{type(error).__name__}: {error}; without gobrrr it runs"
            )
    if isinstance(error, GobrrrError):
        return error
    return UserCodeError(f"the step raised {type(error).__name__}: {error}")


def diagnose(
    target: Any,
    *,
    steps: int | None = None,
    warmup: int | None = None,
    batch_test: bool | None = None,
    compare_compiled: bool = False,
    restore: bool = True,
    refresh_ceilings: bool = False,
    ceilings: Ceilings | None = None,
    name: str | None = None,
    progress: Progress | bool | None = None,
) -> Diagnosis:
    """Diagnose a callable without arguments, ``(module, inputs)`` or a ``Workload``.

    The target's state (weights, optimizers, random generators, all that it can reach) is put back
    afterwards, unless ``restore`` is false. ``steps`` are timed plain (default: chosen from their
    length), after ``warmup`` steps (default: until times settle). ``compare_compiled`` compiles the
    step's forward too (seconds to minutes) and says which kernels ``torch.compile`` leaves.
    ``batch_test`` runs the step on twice the data; by default where that takes a few seconds.
    ``progress``: by default sentences on stderr after two seconds; ``False`` for none, or a
    function of ``(phase, done, wanted)``.

    Raises InputError for a target that cannot be run, UserCodeError if a step raises, DefectError
    if gobrrr fails on a step that runs without it.
    """
    work = as_workload(target)
    if steps is not None and steps < FEWEST_STEPS:
        raise InputError(f"steps must be at least {FEWEST_STEPS}, not {steps}")
    notices: list[str] = []
    compiled_before = compiler_counters()
    with shown(progress) as tell:
        ceilings = ceilings or load_ceilings(refresh=refresh_ceilings, progress=tell)
        with kernels_built_to_be_seen(), _state_put_back(work, restore, notices):
            done = diagnose_work(work, Plan(warmup, steps), ceilings, name, tell)
            done.diagnosis.counters |= counted_since(compiled_before)
            whole = done.analysis is not None and not done.measured.unrecorded
            if batch_test is not False and isinstance(work, Workload) and whole:
                outcome = double_batch(
                    work,
                    done,
                    ceilings,
                    this_device(),
                    tell,
                    measure_step,
                    always=batch_test is True,
                )
                if isinstance(outcome, str):
                    notices.append(outcome)
                else:
                    done.diagnosis.batch_doubling = outcome
            if compare_compiled:
                from gobrrr.fixes.inductor_comparison import comparison_notices

                notices += comparison_notices(work)
    done.diagnosis.notices += notices
    return done.diagnosis


def diagnose_work(
    work: Workload | Callable[[], Any],
    plan: Plan,
    ceilings: Ceilings,
    name: str | None,
    progress: Progress,
) -> Diagnosed:
    """Diagnose one step's callable or workload as it is: its state moves on with the steps."""
    step: Callable[[], Any]
    modules = None
    if isinstance(work, Workload):
        step, title = work.step, type(work.model).__name__
        if hasattr(work.model, "named_modules"):
            modules = {"": work.model}
    else:
        step, title = work, getattr(work, "__qualname__", type(work).__name__)
    measured = measure_step(step, plan, modules=modules, progress=progress)
    source = {"kind": "function", "name": name or title}
    if measured.device_timeline is not None:
        return Diagnosed(diagnose_on_device(measured, source, progress), None, measured)
    device = this_device()
    try:
        analysis = analyse_cpu(measured, ceilings, device, progress)
        diagnosis = diagnose_on_processor(measured, analysis, ceilings, device, source)
        add_cpu_fusion(diagnosis, analysis.capture, analysis.result, ceilings)
    except GobrrrError:
        raise
    except Exception as error:
        raise analysis_failed(error) from error
    return Diagnosed(diagnosis, analysis, measured)


def analysis_failed(error: Exception) -> DefectError:
    """A defect of gobrrr after the steps were measured, in one sentence."""
    return DefectError(
        "gobrrr measured the steps but failed to analyse them, which is a defect of gobrrr and "
        f"not of the program: {type(error).__name__}: {error}"
    )


def diagnose_on_processor(
    measured: Measurements,
    analysis: CpuAnalysis,
    ceilings: Ceilings,
    device: Device,
    source: dict[str, Any],
) -> Diagnosis:
    """The diagnosis of steps that ran on the processor."""
    import torch

    step = attributed_cpu(measured, analysis, ceilings, device, torch.get_num_threads())
    return assemble(step, source=source, environment=describe_environment())


def diagnose_on_device(
    measured: Measurements, source: dict[str, Any], progress: Progress
) -> Diagnosis:
    """The diagnosis of steps that ran on a GPU, from their timeline and their unprofiled times."""
    timeline = measured.device_timeline
    assert timeline is not None
    name = timeline.device.name
    ceilings = ceilings_for_this_machine(
        kind="gpu",
        progress=lambda done, total, what: progress(f"ceilings of {name}: {what}", done, total),
    )
    found = attribute_device(timeline, ceilings, work_of)
    unprofiled_s = [ns * 1e-9 for ns in measured.all_plain_ns]
    step = attributed_device(timeline, found, ceilings, unprofiled_s)
    diagnosis = assemble(step, source=source, environment=describe_environment())
    add_device_fusion(diagnosis, timeline, found, ceilings)
    diagnosis.notices += measured.notices
    return diagnosis


@contextmanager
def _state_put_back(work: Any, restore: bool, notices: list[str]) -> Any:
    if not restore:
        yield
        return
    roots = (
        (work.model, work.inputs, work.loss, work.optimizer, work.targets)
        if isinstance(work, Workload)
        else (work,)
    )
    try:
        snapshot = Snapshot(*roots)
    except (MemoryError, RuntimeError) as error:
        notices.append(f"State is not put back: copying it failed ({type(error).__name__}).")
        yield
        return
    if snapshot.not_rewound:
        names = ", ".join(sorted(set(snapshot.not_rewound))[:5])
        notices.append(f"Cannot be rewound and was consumed by the measured steps: {names}.")
    try:
        yield
    finally:
        snapshot.restore()


@dataclass
class ScriptOutcome:
    """How the script ended, and its diagnosis or the reason why there is none.

    ``too_few_steps``: fewer than the plan needs, which is the reason.
    """

    exit: ScriptExit
    diagnosis: Diagnosis | None
    problem: str | None
    too_few_steps: bool = False


def diagnose_script(
    target: str,
    argv: list[str],
    *,
    is_module: bool = False,
    steps: int | None = None,
    warmup: int | None = None,
    stop: bool = False,
    refresh_ceilings: bool = False,
    progress: Progress = silent,
    on_diagnosis: Callable[[Diagnosis], None] = lambda diagnosis: None,
    on_analysis: OnAnalysis = lambda diagnosis, analysis, watcher: None,
) -> ScriptOutcome:
    """Run a script (or, with ``is_module``, a module) unmodified and diagnose its steps on the way.

    ``on_diagnosis`` is called as soon as the measured steps are over; the script then runs on at
    full speed (``stop`` ends it there). ``on_analysis`` is called at the same moment with what lies
    behind the diagnosis, while the script's objects live. Raises InputError before anything of the
    script has run.
    """
    if steps is not None and steps < FEWEST_STEPS:
        raise InputError(f"--steps must be at least {FEWEST_STEPS}, not {steps}")
    script: Script = load_module(target) if is_module else load_script(target)
    ceilings = load_ceilings(refresh=refresh_ceilings, progress=progress)
    source = {"kind": "module" if is_module else "script", "name": Path(target).name}
    run = _ScriptRun(
        Plan(warmup, steps), ceilings, source, stop, progress, on_diagnosis, on_analysis
    )
    run.watcher.install()
    try:
        with kernels_built_to_be_seen():
            ended = run_script(script, argv)
    finally:
        run.watcher.remove()
        run.session.salvage()
        run.session.abandon()
    unfinished = run.diagnosis is None and run.problem is None
    if unfinished and not (ended.raised or ended.interrupted):
        run.conclude_early()
    return ScriptOutcome(ended, run.diagnosis, run.problem, run.too_few_steps)


class _ScriptRun:
    """Connects the step watcher to the session, and concludes when the session is done."""

    def __init__(
        self,
        plan: Plan,
        ceilings: Ceilings,
        source: dict[str, Any],
        stop: bool,
        progress: Progress,
        on_diagnosis: Callable[[Diagnosis], None],
        on_analysis: OnAnalysis,
    ) -> None:
        self._ceilings = ceilings
        self._source = source
        self._stop = stop
        self._progress = progress
        self._on_diagnosis = on_diagnosis
        self._on_analysis = on_analysis
        self.session = Session(plan, on_phase=progress, find_device=device_in_use)
        self.watcher = StepWatcher(self._on_boundary)
        self.diagnosis: Diagnosis | None = None
        self.problem: str | None = None
        self.too_few_steps = False

    def _on_boundary(self, source: str, restarted: bool) -> None:
        if restarted:
            self.session.restart()
        if self.session.boundary(source):
            self.watcher.remove()
            self._conclude()
            if self._stop:
                raise StopScript

    def conclude_early(self) -> None:
        """Use what there is of a script that ended too soon, or say what is missing."""
        measured = self.session.result
        if not measured.source:
            self.problem = (
                "the script never ran a step that gobrrr can see: no optimizer step, no nn.Module "
                "call, no gobrrr.step() block. Put `with gobrrr.step():` around the body of its "
                "loop."
            )
            return
        timed = len(measured.all_plain_ns)
        profiled = len(measured.profiled)
        if measured.device_timeline is not None:
            profiled = len(measured.device_timeline.steps)
        if timed >= FEWEST_STEPS and profiled >= 1 and measured.recorded is not None:
            measured.notices.append(
                f"The script ended during {self.session.phase}: {timed} steps timed, "
                f"{profiled} profiled."
            )
            self._conclude()
            return
        self.too_few_steps = True
        self.problem = (
            f"the script ended during {self.session.phase}: too few steps to diagnose. "
            "Let it run some 40."
        )

    def _conclude(self) -> None:
        import torch

        measured = self.session.result
        if self.session.phase == DONE and not (measured.profiled or measured.device_timeline):
            self.problem = " ".join(measured.notices) or "no step could be profiled"
            return
        ceilings = self._ceilings
        analysis: CpuAnalysis | None = None
        try:
            # The script may have set the threads, or may be inside inference mode here.
            with torch.inference_mode(False), torch.enable_grad():
                if measured.device_timeline is not None:
                    found = diagnose_on_device(measured, self._source, self._progress)
                else:
                    ceilings = load_ceilings(refresh=False, progress=self._progress)
                    device = this_device()
                    analysis = analyse_cpu(measured, ceilings, device, self._progress)
                    found = diagnose_on_processor(
                        measured, analysis, ceilings, device, self._source
                    )
                    add_cpu_fusion(found, analysis.capture, analysis.result, ceilings)
        except GobrrrError as error:
            self.problem = str(error)
            return
        # The script is not to blame, and runs on.
        except Exception as error:
            self.problem = str(analysis_failed(error))
            return
        # gobrrr itself compiles nothing: what was compiled in this process, the script compiled.
        found.counters |= compiler_counters()
        self.diagnosis = found
        self._on_diagnosis(found)
        self._on_analysis(found, analysis, self.watcher)
