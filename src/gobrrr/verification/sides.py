"""What a child does with a program: run steps of it when it is its turn, or try fixes on it.

A function's parts are in gobrrr's hands; a script runs unmodified, and is held at the end of a
step until its turn comes. Both take turns in the same way (``Turns``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from gobrrr.devices.backends import gpu_in_use, synchronise
from gobrrr.fixes.changes import modules_reached
from gobrrr.live.measurements import settled
from gobrrr.live.script import Script, StopScript, load_module, load_script, run_script
from gobrrr.live.steps import StepWatcher, taken_over_by
from gobrrr.measure.process_counters import minor_faults
from gobrrr.measure.process_memory import peak_memory_bytes
from gobrrr.measure.timing import warm_up
from gobrrr.timeline.errors import GobrrrError
from gobrrr.timeline.workload import Workload, load_function
from gobrrr.verification.child import Parent, find_fixes
from gobrrr.verification.copies import seeded_by_program, seeded_generators, set_seeds
from gobrrr.verification.memory import MemoryRecord, set_limit
from gobrrr.verification.messages import (
    Ended,
    Failed,
    Go,
    Loaded,
    MeasureNull,
    NullMeasured,
    Ready,
    Spec,
    Target,
    Tried,
    Try,
    Turn,
)
from gobrrr.verification.records import record_of
from gobrrr.verification.script_recorder import Recorder
from gobrrr.verification.trial import Changes, describe
from gobrrr.verification.workloads import (
    Baseline,
    apply_all,
    as_trial_workload,
    evaluated,
    measure_null,
    prepare,
    verify_workload,
)

FUNCTION_WARM_UP_S = 5.0
FEWEST_WARM_UP_STEPS = 3
WARM_UP_MOST_STEPS, WARM_UP_MOST_S = 30, 20.0


def try_fixes(spec: Spec, parent: Parent) -> None:
    """Load a function; then measure the null or try fixes in this process, as asked."""
    workload = _load(spec.target)
    parent.tell(Loaded())
    baseline: Baseline | None = None
    while True:
        asked = parent.ask()
        if isinstance(asked, MeasureNull):
            parent.tell(NullMeasured(measure_null(workload, budget_s=asked.budget_s)))
            continue
        assert isinstance(asked, Try)
        deadline = time.monotonic() + asked.limit_s
        baseline = baseline or prepare(workload)
        trial = verify_workload(
            workload, find_fixes(asked.fixes, spec.target.registry), null=asked.null,
            baseline=baseline, speed_of_light_s=asked.speed_of_light_s, tolerance=asked.tolerance,
            budget_s=asked.budget_s, deadline=deadline,
        )  # fmt: skip
        parent.tell(Tried(trial))


def take_turns(spec: Spec, parent: Parent) -> None:
    """Run the program with the fixes on it for good; its steps take turns from when warm."""
    if spec.eager_random:
        draw_as_eager_code_does()
    if spec.target.is_function:
        _take_turns_of_function(spec, parent)
    else:
        _take_turns_of_script(spec, parent)


def _load(target: Target) -> Workload:
    # Two processes make the same inputs.
    set_seeds()
    workload = as_trial_workload(load_function(target.name))
    _set_limit(target)
    return workload


def load(target: Target) -> Script:
    """A script or module, compiled. Raises InputError before anything of it has run."""
    return load_module(target.name) if target.kind == "module" else load_script(target.name)


def _set_limit(target: Target) -> None:
    if target.memory_limit_bytes is not None:
        set_limit(target.memory_limit_bytes)


class Turns:
    """Runs as many steps as it is told to, and tells the time that they took."""

    def __init__(self, parent: Parent, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.parent = parent
        self.clock = clock
        self._left = 0
        self._begun_ns = 0
        self._begun_kernel = 0.0, 0
        self._memory: MemoryRecord | None = None

    def begin(self, ready: Ready) -> None:
        """Steps are warm: wait for the first turn. Raises EOFError if there is none."""
        self.parent.tell(ready)
        self._await_turn()

    def step_ended(self) -> None:
        """Returns when the next step may begin. Raises EOFError if there is none."""
        self._left -= 1
        if self._left:
            return
        synchronise()
        length_s = (self.clock() - self._begun_ns) * 1e-9
        system_s, faults = (
            now - then for now, then in zip(_kernel_use(), self._begun_kernel, strict=True)
        )
        turn = Turn(length_s, peak_bytes(), system_s=system_s, faults=int(faults))
        if self._memory is not None:
            self._memory.__exit__(None, None, None)
            turn.step_memory_bytes = self._memory.peak_bytes
            self._memory = None
        self.parent.tell(turn)
        self._await_turn()

    def _await_turn(self) -> None:
        asked = self.parent.ask()
        assert isinstance(asked, Go)
        self._left = asked.steps
        if asked.memory:
            # A step is no block of code in a script: it ends at the next boundary.
            self._memory = MemoryRecord().__enter__()
        self._begun_kernel = _kernel_use()
        synchronise()
        self._begun_ns = self.clock()


def _take_turns_of_function(spec: Spec, parent: Parent) -> None:
    workload = _load(spec.target)
    fixes = [f for f in find_fixes(spec.fixes, spec.target.registry) if f.apply is not None]
    changes = Changes(fixes)
    with ExitStack() as applied:
        begun = time.perf_counter()
        changed = apply_all(workload, fixes, applied)
        apply_s = time.perf_counter() - begun
        pieces: list[float] = []
        try:
            evaluation = evaluated(workload, changed, pieces)
            step_s, _ = warm_up(changed.step, sync=synchronise, limit_s=FUNCTION_WARM_UP_S)
        except Exception as error:
            raise GobrrrError(describe(error)) from error
        turns = Turns(parent)
        turns.begin(
            Ready(
                step_s, apply_s + sum(pieces), record_of(evaluation), peak_bytes(),
                apply_s + sum(pieces[:2]), changes.idle(),
            )
        )  # fmt: skip
        while True:
            # Alive until the next has run: freeing a result is not part of making it.
            kept = changed.step()  # noqa: F841
            turns.step_ended()


def _take_turns_of_script(spec: Spec, parent: Parent) -> None:
    script = load(spec.target)
    fixes = find_fixes(spec.fixes, spec.target.registry)
    _set_limit(spec.target)
    # What a fix changes where it is installed counts: a number of threads, before any step.
    changes = Changes(fixes)
    with ExitStack() as installed:
        enter_in_script(fixes, installed)
        recorder = Recorder()
        turns = ScriptTurns(parent, recorder, changes, step_source=spec.step_source)
        watcher = StepWatcher(turns.boundary)
        recorder.watcher = watcher
        installed.callback(recorder.remove)
        recorder.install()
        installed.callback(watcher.remove)
        watcher.install()
        # Last: only what is loaded by now has generators to seed.
        installed.enter_context(seeded_generators())
        set_seeds()
        turns.start()
        ended = run_script(script, list(spec.target.argv))
    parent.tell(
        Ended(
            ended.code, turns.steps, describe(ended.error) if ended.error is not None else "",
            isinstance(ended.error, EOFError),
        )
    )  # fmt: skip


class ScriptTurns(Turns):
    """Counts a script's steps until they are warm; then they take turns.

    ``step_source``: what ends them, if that is known. Until it first does, weaker signals do: calls
    of a module come before the optimizer's first step, and as many as a step has may seem warm.
    """

    def __init__(
        self,
        parent: Parent,
        recorder: Recorder,
        changes: Changes,
        clock: Callable[[], int] = time.perf_counter_ns,
        step_source: str = "",
    ) -> None:
        super().__init__(parent, clock)
        self._weaker = taken_over_by(step_source)
        self._recorder = recorder
        self._changes = changes
        self.steps = 0
        self._started_ns = 0
        self._since_ns: int | None = None
        self._warm_up: list[int] = []
        self._ready = False

    def start(self) -> None:
        """The script starts now."""
        self._started_ns = self.clock()

    def boundary(self, source: str, restarted: bool) -> None:
        """A step has ended. Returns when the next may begin; raises StopScript at the end."""
        if source in self._weaker:
            return
        now = self.clock()
        self.steps += 1
        if restarted:
            if self._ready:
                self.parent.tell(Failed("what ends a step changed while it was timed"))
                raise StopScript
            self._warm_up.clear()
            self._since_ns = None
        self._recorder.boundary(source)
        try:
            if self._ready:
                self.step_ended()
                return
            if self._since_ns is not None:
                self._warm_up.append(now - self._since_ns)
                if self._warm() and (self._recorder.complete or self._long_enough()):
                    self._ready = True
                    self.begin(self._how_it_started())
                    return
        except EOFError:
            raise StopScript from None
        self._since_ns = self.clock()

    def _warm(self) -> bool:
        lengths = self._warm_up
        if len(lengths) < FEWEST_WARM_UP_STEPS:
            return False
        return settled(lengths) or self._long_enough()

    def _long_enough(self) -> bool:
        lengths = self._warm_up
        enough = len(lengths) >= WARM_UP_MOST_STEPS or sum(lengths) > WARM_UP_MOST_S * 1e9
        return enough and len(lengths) >= FEWEST_WARM_UP_STEPS

    def _how_it_started(self) -> Ready:
        steady_s = min(self._warm_up[-3:]) * 1e-9
        started_s = (self.clock() - self._started_ns) * 1e-9 - steady_s * self.steps
        record, idle = self._recorder.record(), self._changes.idle()
        return Ready(
            steady_s, started_s, record, peak_bytes(), idle=idle, modules=modules_reached(),
            seeded=seeded_by_program(),
        )  # fmt: skip


def draw_as_eager_code_does() -> None:
    """Tell the compiler to: its random numbers are others otherwise, though as good."""
    import torch._inductor.config as inductor

    inductor.fallback_random = True


def _kernel_use() -> tuple[float, int]:
    """Seconds that this process has spent in the kernel, and its minor page faults."""
    return os.times().system, minor_faults()


def peak_bytes() -> int:
    """The most memory that this process has held so far: resident, or on a GPU allocated."""
    backend = gpu_in_use()
    meter = None if backend is None else backend.memory()
    if meter is not None:
        return meter.peak_bytes()
    peak = peak_memory_bytes()
    assert peak is not None, "this system does not say what memory a process takes"
    return peak


def enter_in_script(fixes: Sequence[Any], stack: ExitStack) -> None:
    """Install fixes before a script runs."""
    for fix in fixes:
        if fix.in_script is not None:
            stack.enter_context(fix.in_script())
