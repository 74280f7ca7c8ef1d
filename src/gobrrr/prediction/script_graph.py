"""The operators of one step of a script on another device, found without computing anything.

The whole script runs with stand-ins, from its first line: it takes no memory, finds the device that
it asks for, and needs no set-up but its own. Its steps end where ``gobrrr run`` says that they end;
one in the steady state is kept, and the script ends there.
"""

from __future__ import annotations

import contextlib
import copy
import io
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gobrrr.live.script import Script, StopScript, main_module
from gobrrr.live.script_run import NO_STEP
from gobrrr.live.steps import MODULE, OPTIMIZER, StepWatcher
from gobrrr.live.training_signs import AwaitedTraining, OptimizersMade
from gobrrr.observe.source_lines import is_user_file
from gobrrr.symbolic.capture_errors import user_errors
from gobrrr.symbolic.capture_setting import CaptureOptions, CaptureTarget, capturing
from gobrrr.symbolic.graph_recorder import GraphRecorder
from gobrrr.symbolic.model_facts import GradientWatch
from gobrrr.symbolic.op_graph import (
    capture_op_graph,
    gradient_watch,
    graph_of,
    say_threads,
)
from gobrrr.symbolic.target.modules import Replacements
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.function_names import offered_functions
from gobrrr.timeline.graph import OpGraph

# Where optimizers have not all stepped by then, those that have are the step's.
_MOST_STEPS = 16
LOADED_BEFORE = (
    "what a data loader does on the host is not in the prediction: a batch is there when it is "
    "asked for"
)
NOT_SAVED = "torch.save writes nothing while the script is captured"


@dataclass(frozen=True, slots=True)
class ScriptProgram:
    """A script or a module with its arguments, to be captured in place of a function."""

    script: Script
    name: str
    argv: tuple[str, ...] = ()


def capture_graph(
    made: Callable[[], Any] | ScriptProgram,
    target: CaptureTarget,
    options: CaptureOptions,
    tell: Callable[[int], None],
) -> OpGraph:
    """Of a script, or of what makes a step (``capture_op_graph``)."""
    if isinstance(made, ScriptProgram):
        return capture_script_graph(made, target, options, tell)
    return capture_op_graph(made, target, options, tell)


def capture_script_graph(
    program: ScriptProgram,
    target: CaptureTarget,
    options: CaptureOptions | None = None,
    tell: Callable[[int], None] | None = None,
) -> OpGraph:
    """The graph of one step of the script, as ``capture_op_graph`` gives it of a function.

    Raises:
        InputError: the script cannot be captured, or ends before a step is known.
        UserCodeError: it raised.
    """
    options = options or CaptureOptions()
    _refuse_what_needs_parts(options)
    said = io.StringIO()
    with _process_put_back(), capturing(target, options, tell) as recorder:
        # A loop logs its losses as arrays too; what sets it up cannot be run by itself.
        recorder.stand_ins.assumes_arrays = True
        found = _StepCapture(recorder, options, program.script)
        with _data_loaded_before(recorder), _nothing_saved(recorder), found.watching():
            try:
                # Its numbers are none: what it would print of them is not shown.
                with user_errors(program.name, recorder.guessed.keys), _autocast(target, options):
                    module = main_module(program.script, list(program.argv))
                    with contextlib.redirect_stdout(said):
                        exec(program.script.code, module.__dict__)
            except StopScript:
                pass
            except SystemExit as leaving:
                found.ended = f"ended with sys.exit({leaving.code!r})"
            except Exception:
                # What it does on its way out, after its step, is no matter here.
                if found.graph is None or not found.stops:
                    raise
            recorder.threads.check()
        graph = found.graph
    if graph is None:
        sys.stderr.write(said.getvalue())
        raise InputError(found.why_none(program))
    return graph


def _refuse_what_needs_parts(options: CaptureOptions) -> None:
    parts = {
        "--inference-mode": options.inference_mode,
        "--channels-last": options.channels_last,
        "--mesh tp": options.tensor_parallel > 1,
    }
    for option, is_given in parts.items():
        if is_given:
            raise InputError(
                f"{option} changes the parts of a step, which a script keeps to itself: it goes "
                "with FILE.py:FUNCTION; or write it into the script"
            )


@contextlib.contextmanager
def _autocast(target: CaptureTarget, options: CaptureOptions) -> Iterator[None]:
    import torch

    if options.autocast is None:
        yield
        return
    kind = "cpu" if target.answers is None else target.answers.type
    with torch.autocast(kind, dtype=getattr(torch, options.autocast)):
        yield


class _StepCapture:
    """Keeps the first step that is like all that follow, and ends the script there."""

    def __init__(self, recorder: GraphRecorder, options: CaptureOptions, script: Script) -> None:
        self._recorder, self._options = recorder, options
        self._watcher = StepWatcher(self._boundary)
        self._optimizers = OptimizersMade()
        self._awaited = AwaitedTraining(self._optimizers, script.code, stops=True)
        self._watch: GradientWatch | None = None
        # What ended the step before the one that is being recorded.
        self._since = ""
        self._kept = 0
        self.graph: OpGraph | None = None
        self.stops = False
        self.ended = "ended"

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Until the block ends steps are looked for."""
        unwatch = self._optimizers.watch()
        self._watcher.install()
        try:
            yield
        finally:
            self._watcher.remove()
            unwatch()

    def why_none(self, program: ScriptProgram) -> str:
        """Why no step was captured."""
        steps = self._watcher.optimizer_steps
        if steps or self._since:
            so_far = f" after {steps} step{'s' * (steps != 1)} of an optimizer" if steps else ""
            return (
                f"{program.name} {self.ended}{so_far}, before a step like all that follow: about 4 "
                "steps are enough"
            )
        there = offered_functions(program.script.file)
        makes = f" Or is it a function's step? {program.script.file} has {', '.join(there)}."
        said = NO_STEP.replace("the script", f"{program.name} {self.ended}: it", 1)
        return said + (makes if there else "")

    def _boundary(self, source: str, restarted: bool) -> None:
        if self._recorder.recording and source == self._since and not restarted:
            self._keep()
            if self._is_the_step(source):
                self.stops = True
                self._watcher.remove()
                raise StopScript
        self._since = source
        if self._options.model:
            self._watch = gradient_watch(None, self._recorder.modules, self._recorder)
        self._recorder.begin()

    def _keep(self) -> None:
        recorder = self._recorder
        running = recorder.threads.running()
        recorder.end()
        say_threads(recorder, running)
        self._kept += 1
        self.graph = graph_of(recorder, recorder.modules, self._watcher.optimizers, self._watch)

    def _is_the_step(self, source: str) -> bool:
        if source == MODULE:
            # Kept for a program that does not train; an optimizer's step may come yet.
            return not self._awaited.goes_on()
        if source != OPTIMIZER or self._kept >= _MOST_STEPS:
            return True
        return len(self._watcher.optimizers_of_step()) >= len(self._optimizers)


@contextlib.contextmanager
def _data_loaded_before(recorder: GraphRecorder) -> Iterator[None]:
    """A data loader makes its batches in this process, and none of its operators is kept."""
    import torch

    loader_class = torch.utils.data.DataLoader
    home = torch.utils.data.dataloader
    put = Replacements()
    next_batch = home._BaseDataLoaderIter.__next__

    def in_this_process(loader: Any) -> Any:
        alone = copy.copy(loader)
        # A loader's own ``__setattr__`` guards some of these.
        vars(alone).update(_DataLoader__multiprocessing_context=None, num_workers=0, timeout=0,
                           prefetch_factor=None, persistent_workers=False)  # fmt: skip
        return home._SingleProcessDataLoaderIter(alone)

    def batch(iterator: Any) -> Any:
        recording, recorder.recording = recorder.recording, False
        try:
            return next_batch(iterator)
        finally:
            recorder.recording = recording
            recorder.assume_for_good(LOADED_BEFORE)

    put(loader_class, "_get_iterator", in_this_process)
    put(home._BaseDataLoaderIter, "__next__", batch)
    try:
        yield
    finally:
        put.undo()


@contextlib.contextmanager
def _nothing_saved(recorder: GraphRecorder) -> Iterator[None]:
    """A checkpoint of stand-ins is none: it does not take a real one's place."""
    import torch

    put = Replacements()
    put(torch, "save", lambda *_, **__: recorder.assume_for_good(NOT_SAVED))
    try:
        yield
    finally:
        put.undo()


@contextlib.contextmanager
def _process_put_back() -> Iterator[None]:
    """What a script changes of its process; its own modules, of stand-ins, are forgotten."""
    argv, path, folder = sys.argv, list(sys.path), Path.cwd()
    modules = dict(sys.modules)
    environment = dict(os.environ)
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path
        os.chdir(folder)
        for name in [each for each in os.environ if each not in environment]:
            del os.environ[name]
        os.environ.update(environment)
        sys.modules["__main__"] = modules["__main__"]
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if name not in modules and isinstance(file, str) and is_user_file(file):
                del sys.modules[name]
