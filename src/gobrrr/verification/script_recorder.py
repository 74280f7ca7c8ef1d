"""What a script's first steps compute, seen from outside and kept small.

Only numbers leave the script: losses that ``backward`` is called on, sketches of gradients and
parameters at its first optimizer steps, and of its outermost module's first outputs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from gobrrr.live.steps import StepWatcher
from gobrrr.observe.module_hooks import watch_module
from gobrrr.observe.optimizer_hooks import around_optimizer_steps
from gobrrr.verification.copies import random_states, tensors_in
from gobrrr.verification.evaluation import call_name
from gobrrr.verification.messages import Computed, Sketch
from gobrrr.verification.records import difference, fingerprint, sketch, sketch_all

# Optimizer steps, or outermost calls, whose results are kept.
RECORDED_STEPS = 3


class Recorder:
    """Keeps what the script's first steps computed."""

    def __init__(self) -> None:
        self.watcher: StepWatcher | None = None
        self.losses: list[float] = []
        self.outputs: dict[str, Sketch] = {}
        self.gradients: dict[str, Sketch] = {}
        self.start: dict[str, Sketch] = {}
        self.moved: dict[str, Sketch] = {}
        # The generators after each of these steps; and what each call was given of integers.
        self.states: list[str] = []
        self.given: list[str] = []
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
        # Without an optimizer, whatever marks the steps: outputs are all there is to compare.
        if self._optimizers or module is None or module is self._hooked:
            return
        self._drop_hook()

        def note(called: Any, args: Any, kwargs: Any) -> None:
            if self._calls < RECORDED_STEPS:
                found = sketch_all(tensors_in((args, kwargs)))
                chosen = {name: item for name, item in found.items() if item.integral}
                self.given.append(fingerprint(tuple(chosen.items())))

        def keep(called: Any, args: Any, result: Any) -> None:
            if self._calls < RECORDED_STEPS:
                self.outputs.update(sketch_all(tensors_in(result, call_name(self._calls + 1))))
                self.states.append(fingerprint(random_states()))
            self._calls += 1

        # A module of TorchScript takes no hook, and a class of the user's may do anything: what
        # such a one returns stays unseen.
        with contextlib.suppress(Exception):
            self._unwatch = watch_module(module, note, keep)
            self._hooked = module

    def record(self) -> Computed:
        """As ``records.read_record`` reads it."""
        # Of one step alone nobody knows whether it draws.
        draws = len(self.states) < 2 or len(set(self.states)) > 1
        return Computed(
            self.outputs, self.gradients, self.moved, tuple(self.losses),
            next(iter(self.states), ""), draws, tuple(self.given),
        )  # fmt: skip

    def _drop_hook(self) -> None:
        if self._hooked is not None:
            self._unwatch()
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
        if self._steps[number] == 1:
            # Of a step that was given a closure, which computes them.
            for name, parameter in _parameters(optimizer, number):
                if name not in self.gradients and parameter.grad is not None:
                    self.gradients[name] = sketch(parameter.grad)
        if len(self.states) < RECORDED_STEPS:
            self.states.append(fingerprint(random_states()))
        if self._steps[number] == RECORDED_STEPS:
            for name, parameter in _parameters(optimizer, number):
                if name in self.start:
                    self.moved[name] = difference(sketch(parameter), self.start[name])


def _parameters(optimizer: Any, number: int) -> list[tuple[str, Any]]:
    return [
        (f"parameter {i} of group {g} of optimizer {number}", parameter)
        for g, group in enumerate(optimizer.param_groups)
        for i, parameter in enumerate(group["params"])
    ]
