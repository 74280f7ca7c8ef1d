"""Fixes on the user's own object, for good: what was tried, called as the user calls it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from gobrrr.fixes.fix import Fix
from gobrrr.fixes.programs import Program, as_program, is_module
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.workload import Workload
from gobrrr.verification.workloads import as_trial_workload


def with_fixes(target: Any, fixes: Sequence[Fix], inputs: Any = ()) -> Any:
    """The target with the fixes applied: a module for a module, else a ``Workload``.

    ``inputs`` are what the module was tried on: what exports a module needs them, and only that
    looks at them. Global settings that the fixes need (threads, precision) hold for each step or
    call. The module's parameters are shared with what is returned. Fixes that need a variable of
    the environment or a script are passed over: they are no change of the target.

    Raises InputError for a target that cannot be run, or that lacks the optimizer that a fix
    changes; nothing is applied then.
    """
    module = is_module(target)
    work = Workload(target, inputs) if module else as_trial_workload(target)
    program = as_program(work)
    changed: Workload = program
    # A step of the user's own has its optimizer in it.
    if program.optimizer is None and not program.plain_call:
        _refuse_without_optimizer(fixes)
    # Nothing is undone: it is what the user asked for.
    stack = ExitStack()
    for fix in fixes:
        if fix.apply is not None:
            changed = stack.enter_context(fix.apply(changed))
    stack.pop_all()
    return _module_with(as_program(changed)) if module else changed


def _refuse_without_optimizer(fixes: Sequence[Fix]) -> None:
    names = " and ".join(fix.name for fix in fixes if fix.changes_optimizer)
    if names:
        raise InputError(
            f"{names}: needs the optimizer, which a module does not have; apply it to the "
            "gobrrr.Workload that was tried"
        )


def _module_with(program: Program) -> Any:
    """A model that carries the settings of its program."""
    settings = (*program.around_step, *program.around_forward)
    if not settings:
        return program.model
    import torch

    class Changed(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = program.model
            self.training = program.model.training

        def __getattr__(self, name: str) -> Any:
            # What else the model can do, without the settings.
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("model"), name)

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            with ExitStack() as stack:
                for setting in settings:
                    stack.enter_context(setting())
                return self.model(*args, **kwargs)

    return Changed()
