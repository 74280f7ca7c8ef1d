"""What a child does with a script: run it unmodified, and stop at each step's end when asked.

Only numbers leave the script: losses that ``backward`` is called on, sketches of gradients and
parameters at its first optimizer steps, and of its outermost module's first outputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from gobrrr.capture.optimizer_hooks import around_optimizer_steps
from gobrrr.capture.script import StopScript, load_module, load_script, run_script
from gobrrr.capture.session import Session
from gobrrr.capture.steps import MODULE, StepWatcher
from gobrrr.verification.child import (
    Parent,
    draw_as_eager_code_does,
    enter_in_script,
    find_fixes,
    peak_bytes,
)
from gobrrr.verification.copies import random_states, set_seeds, tensors_in
from gobrrr.verification.memory import MemoryRecord, set_limit
from gobrrr.verification.records import fingerprint, sketch, sketch_all
from gobrrr.verification.trial import describe
from gobrrr.verification.workloads import synchronise

# Optimizer steps, or outermost calls, whose results are kept.
RECORDED_STEPS = 3
FEWEST_WARM_UP_STEPS = 3
WARM_UP_MOST_STEPS, WARM_UP_MOST_S = 30, 20.0


def run(spec: Mapping[str, Any], parent: Parent) -> None:
    """Run the script with the fixes installed; its steps take turns from when they are warm."""
    script = load_module(spec["target"]) if spec["kind"] == "module" else load_script(
        spec["target"]
    )  # fmt: skip
    import torch

    if spec.get("threads"):
        torch.set_num_threads(spec["threads"])
    if spec.get("eager_random"):
        draw_as_eager_code_does()
    fixes = find_fixes(spec["fixes"], spec["registry"])
    if spec.get("memory_limit_bytes") is not None:
        set_limit(spec["memory_limit_bytes"])
    with ExitStack() as installed:
        enter_in_script(fixes, installed)
        recorder = Recorder()
        turns = Turns(parent, recorder)
        watcher = StepWatcher(turns.boundary)
        recorder.watcher = watcher
        set_seeds()
        installed.callback(recorder.remove)
        recorder.install()
        installed.callback(watcher.remove)
        watcher.install()
        turns.begin()
        ended = run_script(script, list(spec["argv"]))
    parent.tell(
        {
            "event": "ended",
            "code": ended.code,
            "steps": turns.steps,
            "raised": describe(ended.error) if ended.error is not None else "",
            "needs_input": isinstance(ended.error, EOFError),
        }
    )


class Turns:
    """Counts steps until they are warm, then runs as many as it is told to and reports the time."""

    def __init__(
        self,
        parent: Parent,
        recorder: Recorder,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._parent = parent
        self._recorder = recorder
        self._clock = clock
        self.steps = 0
        self._begun_ns = 0
        self._since_ns: int | None = None
        self._warm_up: list[int] = []
        self._left = 0
        self._turn_ns = 0
        self._memory: MemoryRecord | None = None
        self._ready = False

    def begin(self) -> None:
        """The script starts now."""
        self._begun_ns = self._clock()

    def boundary(self, source: str, restarted: bool) -> None:
        """A step has ended. Returns when the next may begin; raises StopScript at the end."""
        now = self._clock()
        self.steps += 1
        if restarted:
            if self._ready:
                self._parent.tell({"error": "what a step is changed while it was timed"})
                raise StopScript
            self._warm_up.clear()
            self._since_ns = None
        self._recorder.boundary(source)
        if self._ready:
            self._turn(now)
            return
        if self._since_ns is not None:
            self._warm_up.append(now - self._since_ns)
            if self._warm() and (self._recorder.complete or self._long_enough()):
                self._become_ready()
                return
        self._since_ns = self._clock()

    def _warm(self) -> bool:
        lengths = self._warm_up
        if len(lengths) < FEWEST_WARM_UP_STEPS:
            return False
        return Session._settled(lengths) or self._long_enough()

    def _long_enough(self) -> bool:
        lengths = self._warm_up
        enough = len(lengths) >= WARM_UP_MOST_STEPS or sum(lengths) > WARM_UP_MOST_S * 1e9
        return enough and len(lengths) >= FEWEST_WARM_UP_STEPS

    def _become_ready(self) -> None:
        self._ready = True
        steady = min(self._warm_up[-3:])
        self._parent.tell(
            {
                "event": "ready",
                "step_s": steady * 1e-9,
                # What it took to get here beyond as many warm steps.
                "started_s": (self._clock() - self._begun_ns) * 1e-9 - steady * 1e-9 * self.steps,
                "record": self._recorder.record(),
                "peak_bytes": peak_bytes(),
            }
        )
        self._await_turn()

    def _turn(self, now: int) -> None:
        self._left -= 1
        if self._left:
            return
        synchronise()
        length_s = (self._clock() - self._turn_ns) * 1e-9
        message = {"event": "turn", "seconds": length_s, "peak_bytes": peak_bytes()}
        if self._memory is not None:
            self._memory.__exit__(None, None, None)
            message["step_memory_bytes"] = self._memory.peak_bytes
            self._memory = None
        self._parent.tell(message)
        self._await_turn()

    def _await_turn(self) -> None:
        try:
            asked = self._parent.ask()
        except EOFError:
            raise StopScript from None
        if "go" not in asked:
            raise StopScript
        self._left = int(asked["go"])
        if asked.get("memory"):
            # A step is no block of code here: it ends at the next boundary.
            self._memory = MemoryRecord().__enter__()
        synchronise()
        self._turn_ns = self._clock()


class Recorder:
    """Keeps what the script's first steps computed."""

    def __init__(self) -> None:
        self.watcher: StepWatcher | None = None
        self.losses: list[float] = []
        self.outputs: dict[str, Any] = {}
        self.gradients: dict[str, Any] = {}
        self.start: dict[str, Any] = {}
        self.moved: dict[str, Any] = {}
        self.random = ""
        self._optimizers: list[Any] = []
        self._steps: dict[int, int] = {}
        self._calls = 0
        self._undo: list[Callable[[], None]] = []
        self._hooked: Any = None

    @property
    def complete(self) -> bool:
        """Whether the steps to keep have run."""
        if self._optimizers:
            return max(self._steps.values(), default=0) >= RECORDED_STEPS
        return self._calls >= RECORDED_STEPS

    def install(self) -> None:
        """Watch ``backward`` and the optimizers."""
        import torch

        original = torch.Tensor.backward

        def backward(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if tensor.numel() == 1 and len(self.losses) < RECORDED_STEPS:
                self.losses.append(float(tensor.detach()))
            return original(tensor, *args, **kwargs)

        torch.Tensor.backward = backward

        def undo() -> None:
            torch.Tensor.backward = original

        self._undo = [undo, around_optimizer_steps(before=self._before, after=self._after)]

    def remove(self) -> None:
        """Leave nothing behind."""
        for undo in self._undo:
            undo()
        self._undo = []
        self._drop_hook()

    def boundary(self, source: str) -> None:
        """After a step: watch the outermost module's outputs, or stop watching."""
        if self.complete:
            self.remove()
            return
        reference = self.watcher.outermost if self.watcher is not None else None
        module = reference() if reference is not None else None
        if source != MODULE or module is None or module is self._hooked:
            return
        self._drop_hook()

        def keep(called: Any, args: Any, result: Any) -> None:
            if self._calls < RECORDED_STEPS:
                found = tensors_in(result, f"call {self._calls + 1}")
                self.outputs.update(sketch_all(found))
                self.random = self.random or fingerprint(random_states())
            self._calls += 1

        self._hooked = module
        self._handle = module.register_forward_hook(keep)

    def record(self) -> dict[str, Any]:
        """As ``records.read_record`` reads it."""
        return {
            "outputs": self.outputs,
            "gradients": self.gradients,
            "moved": self.moved,
            "losses": self.losses,
            "random": self.random,
            "draws": True,
        }

    def _drop_hook(self) -> None:
        if self._hooked is not None:
            self._handle.remove()
            self._hooked = None

    def _number(self, optimizer: Any) -> int:
        for number, known in enumerate(self._optimizers):
            if known is optimizer:
                return number
        self._optimizers.append(optimizer)
        return len(self._optimizers) - 1

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        number = self._number(optimizer)
        if number in self._steps:
            return
        self._steps[number] = 0
        for name, parameter in _parameters(optimizer, number):
            self.start[name] = sketch(parameter)
            if parameter.grad is not None:
                self.gradients[name] = sketch(parameter.grad)

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        number = self._number(optimizer)
        self._steps[number] = self._steps.get(number, 0) + 1
        self.random = self.random or fingerprint(random_states())
        if self._steps[number] == RECORDED_STEPS:
            for name, parameter in _parameters(optimizer, number):
                if name in self.start:
                    self.moved[name] = difference(sketch(parameter), self.start[name])


def difference(after: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """The sketch of a difference: sketches are linear."""
    import base64

    from gobrrr.verification.records import read_sketch

    moved = read_sketch(after) - read_sketch(before)
    return {
        "shape": after["shape"],
        "values": base64.b64encode(moved.numpy().tobytes()).decode(),
    }


def _parameters(optimizer: Any, number: int) -> list[tuple[str, Any]]:
    return [
        (f"parameter {i} of group {g} of optimizer {number}", parameter)
        for g, group in enumerate(optimizer.param_groups)
        for i, parameter in enumerate(group["params"])
    ]


__all__ = ["Recorder", "Turns", "difference", "run"]
