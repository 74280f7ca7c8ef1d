"""Private copies of a workload, so that trying a fix changes nothing of the user's."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gobrrr.capture.workload import Workload
from gobrrr.devices import backends
from gobrrr.timeline.errors import InputError

SEED = 20260101


@dataclass(frozen=True)
class StepFunction(Workload):
    """A bare callable as a workload: its step is one call, in whatever mode the callable sets.

    It has no parts: it cannot be copied, and a reference in higher precision cannot be made of it.
    """

    def forward(self) -> Any:
        """What the callable returns."""
        return self.model()

    def step(self) -> Any:
        """One call; returns what the callable returns."""
        return self.model()


def private_copy(workload: Workload) -> Workload:
    """A copy that shares no tensor with the original; the copy's optimizer drives its own model.

    A ``StepFunction`` comes back as it is. Raises InputError if a part cannot be copied.
    """
    if isinstance(workload, StepFunction):
        return workload
    parts = (
        workload.model, workload.inputs, workload.targets, workload.optimizer, workload.loss,
    )  # fmt: skip
    try:
        # One memo for all parts: parameters in the optimizer stay those of the model.
        memo: dict[int, Any] = {}
        model, inputs, targets, optimizer, loss = copy.deepcopy(parts, memo)
        _complete(workload.optimizer, optimizer, memo)
    except Exception as error:
        raise InputError(
            f"the workload cannot be copied ({type(error).__name__}: {error}), and fixes are "
            "tried on a copy; give a file.py:function target that builds a new one"
        ) from error
    return replace(
        workload, model=model, inputs=inputs, targets=targets, optimizer=optimizer, loss=loss
    )


def _complete(original: Any, made: Any, memo: dict[int, Any]) -> None:
    """What a copy of an optimizer lacks: ``Optimizer.__getstate__`` leaves a subclass's own out."""
    for name, value in vars(original).items() if original is not None else ():
        if name not in vars(made):
            setattr(made, name, copy.deepcopy(value, memo))


def in_precision(workload: Workload, dtype: Any) -> Workload:
    """Change a private copy's floating-point parameters, buffers and inputs to ``dtype``, in place.

    Optimizer state follows. Raises what the model raises if it does not allow that.
    """
    import torch

    module = module_of(workload.model)
    if module is not None:
        # Not .to(dtype): that makes complex buffers real.
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                tensor.data = tensor.data.to(dtype)
                if tensor.is_leaf and tensor.grad is not None:
                    tensor.grad = tensor.grad.to(dtype)
    if workload.optimizer is not None:
        for state in workload.optimizer.state.values():
            for key, value in state.items():
                if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim():
                    state[key] = value.to(dtype)

    def converted(tensor: Any) -> Any:
        if not tensor.is_floating_point():
            return tensor
        return tensor.detach().to(dtype).requires_grad_(tensor.requires_grad)

    return workload.with_tensors(converted)


def module_of(value: Any) -> Any:
    """The ``nn.Module`` that a callable is, or a method of; ``None`` if neither."""
    import torch

    owner = getattr(value, "__self__", value)
    return owner if isinstance(owner, torch.nn.Module) else None


def set_seeds(seed: int = SEED) -> None:
    """Start every random generator of the process from ``seed``."""
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)


def random_states() -> tuple[Any, ...]:
    """How far each generator has come, comparable with ``==``."""
    states: list[Any] = [random.getstate()]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, keys, *rest = numpy.random.get_state()
        states.append((kind, keys.tobytes(), *rest))
    torch = sys.modules.get("torch")
    if torch is not None:
        states.append(torch.get_rng_state().numpy().tobytes())
        for backend in backends.BACKENDS:
            states += [state.cpu().numpy().tobytes() for state in backend.random_states()]
    return tuple(states)


def tensors_in(value: Any, name: str = "output") -> dict[str, Any]:
    """Every tensor in nested containers, dataclasses and objects with fields, by path.

    Depth is bounded; what is neither a container nor a tensor (a Python number aside, which
    becomes one) is passed over.
    """
    found: dict[str, Any] = {}
    _gather(value, name, found, 0)
    return found


def _gather(value: Any, name: str, found: dict[str, Any], depth: int) -> None:
    import torch

    if depth > 8:
        return
    if isinstance(value, torch.Tensor):
        found[name] = value
    elif isinstance(value, float):
        found[name] = torch.tensor(value, dtype=torch.float64)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _gather(item, f"{name}.{key}", found, depth + 1)
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            _gather(item, f"{name}[{index}]", found, depth + 1)
    elif hasattr(value, "__dataclass_fields__"):
        for key in value.__dataclass_fields__:
            _gather(getattr(value, key, None), f"{name}.{key}", found, depth + 1)
    elif (
        type(value).__module__ not in ("builtins", "types")
        and hasattr(value, "__dict__")
        and not isinstance(value, torch.nn.Module)
    ):
        for key, item in vars(value).items():
            _gather(item, f"{name}.{key}", found, depth + 1)
