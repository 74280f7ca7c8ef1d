"""Private copies of a workload, so that trying a fix changes nothing of the user's."""

from __future__ import annotations

import copy
import random
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial, wraps
from itertools import count
from typing import Any

from gobrrr.devices import backends
from gobrrr.observe.snapshot import Snapshot
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.workload import Workload

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
        loss = _on_copies(loss, memo)
    except Exception as error:
        raise InputError(
            f"the workload cannot be copied ({type(error).__name__}: {error}), and fixes are "
            "tried on a copy; give a file.py:function target that builds a new one"
        ) from error
    return replace(
        workload, model=model, inputs=inputs, targets=targets, optimizer=optimizer, loss=loss
    )


def _complete(original: Any, made: Any, memo: dict[int, Any]) -> None:
    """What a copy of an optimizer lacks: ``Optimizer.__getstate__`` leaves a subclass's own out.

    Functions in the place of methods stay with the original: a learning-rate scheduler's ``step``
    is bound to the optimizer that it was made for.
    """
    for name, value in vars(original).items() if original is not None else ():
        replaced = callable(value) and hasattr(type(original), name)
        if name not in vars(made) and not replaced:
            setattr(made, name, copy.deepcopy(value, memo))


def _on_copies(function: Any, memo: Mapping[int, Any]) -> Any:
    """The function with the copies of what was copied in its closure, which ``deepcopy`` shares.

    Variables of the module stay: compiled code looks for those there.
    """
    if type(function) is partial:
        # Its arguments are copies already.
        return partial(_on_copies(function.func, memo), *function.args, **function.keywords)
    if not isinstance(function, types.FunctionType):
        return function
    cells = function.__closure__ or ()
    copied = tuple(_cell_on_copies(cell, memo) for cell in cells)
    if all(one is other for one, other in zip(cells, copied)):
        return function
    made = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, copied
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__, made.__module__ = function.__qualname__, function.__module__
    made.__dict__.update(vars(function))
    return made


def _cell_on_copies(cell: types.CellType, memo: Mapping[int, Any]) -> types.CellType:
    try:
        value = cell.cell_contents
    except ValueError:
        return cell
    if id(value) in memo:
        return types.CellType(memo[id(value)])
    if type(value) in (list, tuple) and value and all(id(item) in memo for item in value):
        return types.CellType(type(value)(memo[id(item)] for item in value))
    return cell


def shared_code(workload: Workload) -> tuple[Any, ...]:
    """What is called in a step of a copy as it is in the original: the loss, and modules' hooks.

    What these reach beyond the copied parts is the user's own.
    """
    loss = () if module_of(workload.loss) is not None else (workload.loss,)
    module = module_of(workload.model)
    return (*loss, *(() if module is None else _hooks(module)))


def _hooks(module: Any) -> list[Any]:
    kinds = (
        "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks",
    )  # fmt: skip
    return [
        hook
        for part in module.modules()
        for kind in kinds
        for hook in getattr(part, kind, {}).values()
    ]


def shared_parameters(workload: Workload, made: Workload) -> tuple[str, ...]:
    """A notice if a copy's step reaches parameters of the original."""
    module = module_of(workload.model)
    if module is None or isinstance(workload, StepFunction):
        return ()
    reached = {id(tensor) for tensor in Snapshot(*shared_code(made)).tensors}
    if reached.isdisjoint(map(id, module.parameters())):
        return ()
    return (
        "The loss or a hook reads parameters of the model by a name of its module or through "
        "another object. Fixes are tried on a copy, where it still reads the original's: gradients "
        "that it gives those are not in the comparison.",
    )


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


@contextmanager
def seeded_generators(seed: int = SEED) -> Iterator[None]:
    """Whatever would take its seed from the system is given one, another each time.

    ``set_seeds`` reaches those generators alone that a process has from its start.
    """
    numbers = count(seed)
    usual = random.Random.seed

    @wraps(usual)
    def of_python(generator: Any, a: Any = None, version: int = 2) -> None:
        usual(generator, next(numbers) if a is None else a, version)

    module_level = types.MethodType(of_python, getattr(random.seed, "__self__"))  # noqa: B009
    places: list[tuple[Any, str, Any]] = [
        (random.Random, "seed", of_python), (random, "seed", module_level),
    ]  # fmt: skip
    entropy = getattr(getattr(sys.modules.get("numpy"), "random", None), "bit_generator", None)
    if hasattr(entropy, "randbits"):
        # All that NumPy seeds by itself asks here.
        places.append((entropy, "randbits", lambda bits: next(numbers)))
    torch = sys.modules.get("torch")
    if torch is not None:

        def of_torch() -> int:
            torch.manual_seed(chosen := next(numbers))
            return chosen

        places += [(torch, "seed", of_torch), (torch.random, "seed", of_torch)]
    with ExitStack() as undo:
        for owner, name, replacement in places:
            undo.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, replacement)
        yield


def seeded_by_program() -> bool:
    """Whether the program has seeded torch since ``set_seeds``."""
    import torch

    return bool(torch.initial_seed() != SEED)


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
