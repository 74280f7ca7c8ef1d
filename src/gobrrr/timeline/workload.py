"""What a user hands over to be diagnosed: a callable, ``(module, inputs)`` or a ``Workload``."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gobrrr.timeline.errors import InputError, UserCodeError
from gobrrr.timeline.function_names import (
    no_such_function,
    refuse_without_result,
    which_function,
)
from gobrrr.timeline.nested import map_tensors, nested_tensors


@dataclass(frozen=True)
class Workload:
    """A step made of parts that gobrrr can rearrange: double its batch, replace its optimizer.

    With ``loss`` and ``optimizer`` a step is a training step (zero_grad, forward, backward, step);
    without, inference (no gradients are recorded).

    Attributes:
        model: any callable, usually an ``nn.Module``.
        inputs: a tensor, a tuple or list of positional arguments, or a dict of keyword arguments.
        loss: ``loss(output)`` or ``loss(output, targets)`` -> scalar tensor. ``None`` with an
            optimizer: ``output.loss`` is used, as ``transformers`` models return it.
        optimizer: a ``torch.optim.Optimizer``.
        targets: second argument of ``loss``.
    """

    model: Any
    inputs: Any = ()
    loss: Callable[..., Any] | None = None
    optimizer: Any = None
    targets: Any = None

    @property
    def trains(self) -> bool:
        """Whether a step trains."""
        return self.optimizer is not None

    def forward(self) -> Any:
        """The model's output for the inputs."""
        if isinstance(self.inputs, Mapping):
            return self.model(**self.inputs)
        if isinstance(self.inputs, (tuple, list)):
            return self.model(*self.inputs)
        return self.model(self.inputs)

    def step(self) -> Any:
        """One step; returns the output (inference) or the loss (training)."""
        import torch

        if not self.trains:
            with torch.no_grad():
                return self.forward()
        self.optimizer.zero_grad()
        output = self.forward()
        if self.loss is not None:
            loss = self.loss(output) if self.targets is None else self.loss(output, self.targets)
        else:
            loss = getattr(output, "loss", None)
            if loss is None:
                raise InputError(
                    "a Workload with an optimizer needs loss=..., or a model whose output has .loss"
                )
        loss.backward()
        self.optimizer.step()
        return loss

    def batch_size(self) -> int | None:
        """Length of the first dimension, if all inputs share it; else ``None``."""
        tensors = nested_tensors((self._inputs, self.targets))
        sizes = {t.shape[0] for t in tensors if t.dim() > 0}
        return sizes.pop() if len(sizes) == 1 else None

    def with_batch_repeated(self, times: int) -> Workload:
        """The same step on ``times`` as much data (each batched tensor repeated along dimension 0).

        Raises InputError if the inputs have no common first dimension.
        """
        if self.batch_size() is None:
            raise InputError("the inputs do not share a first (batch) dimension")
        return self.with_tensors(lambda tensor: _repeated(tensor, times))

    def with_tensors(self, change: Callable[[Any], Any]) -> Workload:
        """The same step with each tensor of its inputs and targets changed."""
        inputs, targets = map_tensors((self._inputs, self.targets), change)
        return replace(self, inputs=inputs, targets=targets)

    @property
    def _inputs(self) -> Any:
        """The inputs; keyword arguments in a plain dict, as a tokenizer's result is none."""
        return dict(self.inputs) if isinstance(self.inputs, Mapping) else self.inputs


def _repeated(tensor: Any, times: int) -> Any:
    import torch

    if tensor.dim() == 0:
        return tensor
    try:
        repeated = torch.cat([tensor.detach()] * times, dim=0)
    except (RuntimeError, NotImplementedError) as error:
        what = type(tensor).__name__
        raise InputError(f"a {what} cannot be repeated: {str(error).splitlines()[0]}") from error
    return repeated.requires_grad_(tensor.requires_grad)


def as_workload(made: Any) -> Workload | Callable[[], Any]:
    """Normalise what the user gave: ``(module, inputs)`` becomes a ``Workload``.

    Raises InputError for anything that cannot be run without arguments.
    """
    if isinstance(made, Workload):
        return made
    if isinstance(made, tuple) and len(made) == 2 and callable(made[0]):
        return Workload(made[0], made[1])
    if callable(made):
        required = _required_parameters(made)
        if required:
            raise InputError(
                f"the step must be callable without arguments; it needs {', '.join(required)} "
                "(give (module, inputs), a gobrrr.Workload, or functools.partial)"
            )
        step: Callable[[], Any] = made
        return step
    raise InputError(
        f"a value of type {type(made).__name__} is not a step: give a callable without arguments, "
        "(module, inputs) or a gobrrr.Workload"
    )


def title_of(work: Workload | Callable[[], Any]) -> str:
    """What reports call a step: its model's class, or its function's name."""
    made = work.model if isinstance(work, Workload) else work
    return str(getattr(made, "__qualname__", type(made).__name__))


def reached_by(work: Workload | Callable[[], Any]) -> tuple[Any, ...]:
    """The objects whose state a step can change."""
    if isinstance(work, Workload):
        return work.model, work.inputs, work.loss, work.optimizer, work.targets
    return (work,)


def modules_of(work: Workload | Callable[[], Any]) -> dict[str, Any] | None:
    """The workload's model as the root of its modules' names; ``None`` if it has no modules."""
    if isinstance(work, Workload) and hasattr(work.model, "named_modules"):
        return {"": work.model}
    return None


def _required_parameters(function: Any) -> list[str]:
    target = getattr(function, "forward", function) if _is_module(function) else function
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return []
    positional = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    )
    return [
        name
        for name, parameter in signature.parameters.items()
        if parameter.kind in positional and parameter.default is inspect.Parameter.empty
    ]


def _is_module(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def load_function(target: str) -> Workload | Callable[[], Any]:
    """``file.py:function`` -> what the function returns, normalised by ``as_workload``.

    Raises InputError if file or function is missing, UserCodeError if the user's code raises.
    """
    path, _, name = target.rpartition(":")
    if Path(target).is_file():
        path, name = target, ""
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{path or target}: no such file")
    if not name:
        raise InputError(which_function(path))
    refuse_without_result(path, name)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)
    sys.path.insert(0, str(file.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise InputError(f"{path}:{error.lineno} is not valid Python: {error.msg}") from None
    except Exception as error:
        raise UserCodeError(f"{path} raised {type(error).__name__} while loading") from error
    function = getattr(module, name, None)
    if function is None:
        raise no_such_function(path, name)
    if not callable(function):
        return as_workload(function)
    if _required_parameters(function):
        raise InputError(f"{path}:{name} must be callable without arguments: it builds the step")
    try:
        made = function()
    except Exception as error:
        raise UserCodeError(f"{path}:{name} raised {type(error).__name__}") from error
    if not callable(made) and not isinstance(made, (Workload, tuple)):
        what = "None" if made is None else f"a value of type {type(made).__name__}"
        raise InputError(
            f"{path}:{name} returned {what}: return the step as a callable, (module, inputs) "
            "or a gobrrr.Workload"
        )
    try:
        return as_workload(made)
    except InputError as error:
        raise InputError(f"{path}:{name}: {error}") from None
