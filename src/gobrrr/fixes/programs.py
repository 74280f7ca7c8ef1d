"""A workload that fixes can change: settings that hold while a step runs, and for no longer.

Before and after are called in turns in one process. So a fix that needs a global setting (threads,
autocast, inference mode) puts it around each step rather than around the trial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

from gobrrr.diagnosis.facts import Facts
from gobrrr.timeline.workload import Workload

Setting = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Program(Workload):
    """A workload with settings.

    Attributes:
        around_step: entered for each whole step, the first outermost.
        around_forward: entered for forward and loss, not for the backward pass.
        plain_call: ``model`` is a step of the user's own: it is called as it is, with gradients
            recorded unless it says otherwise.
    """

    around_step: tuple[Setting, ...] = ()
    around_forward: tuple[Setting, ...] = ()
    plain_call: bool = False

    def forward(self) -> Any:
        """The model's output under all settings: what compiles it on its first call reads them."""
        if not (self.around_step or self.around_forward):
            return super().forward()
        with _entered((*self.around_step, *self.around_forward)):
            return super().forward()

    def step(self) -> Any:
        """One step under all settings; returns what ``Workload.step`` does."""
        import torch

        if not (self.around_step or self.around_forward or self.plain_call):
            # As short as what the user runs: contexts would cost a small compiled step percents.
            return super().step()
        if self.plain_call:
            return self.forward()
        if not self.trains:
            with torch.no_grad():
                return self.forward()
        with _entered(self.around_step):
            self.optimizer.zero_grad()
            with _entered(self.around_forward):
                output = super().forward()
                loss = self.loss_of(output)
            loss.backward()
            self.optimizer.step()
            return loss

    def loss_of(self, output: Any) -> Any:
        """The loss of an output, as ``Workload.step`` finds it."""
        if self.loss is None:
            return output.loss
        return self.loss(output) if self.targets is None else self.loss(output, self.targets)


@contextmanager
def _entered(settings: Sequence[Setting]) -> Iterator[None]:
    if not settings:
        yield
        return
    with ExitStack() as stack:
        for setting in settings:
            stack.enter_context(setting())
        yield


def as_program(target: Workload | Callable[[], Any]) -> Program:
    """A workload, or a step that takes no arguments, as a ``Program``."""
    if isinstance(target, Program):
        return target
    if isinstance(target, Workload):
        if type(target).step is not Workload.step:
            # Its step is its own: what is known of its parts does not say what it does with them.
            none = isinstance(target.inputs, (tuple, list, dict)) and not target.inputs
            whole = target.model if none else target.step
            return Program(model=whole, plain_call=True)
        return Program(**{f.name: getattr(target, f.name) for f in fields(Workload)})
    return Program(model=target, plain_call=True)


def with_setting(work: Workload, setting: Setting, *, forward_only: bool = False) -> Program:
    """The same program with one more setting, inside those that it has."""
    program = as_program(work)
    if forward_only:
        return replace(program, around_forward=(*program.around_forward, setting))
    return replace(program, around_step=(*program.around_step, setting))


def is_module(value: Any) -> bool:
    """Whether this is an ``nn.Module``."""
    import torch

    return isinstance(value, torch.nn.Module)


def model_by_hand(facts: Facts) -> str:
    """Why gobrrr cannot change a step's modules; empty if it can (``Prospect.by_hand``)."""
    if facts.is_script or facts.modules:
        return ""
    return "the model is inside a function, where gobrrr cannot change it: give (module, inputs)"


@contextmanager
def with_model_changed(change: Callable[[Any], None], work: Workload) -> Iterator[Program]:
    """The program with its model changed in place, if that is a module."""
    program = as_program(work)
    if is_module(program.model):
        change(program.model)
    yield replace(program)
