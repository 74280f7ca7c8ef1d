"""A program asks for its device and is answered as if it ran on the target.

Stand-in tensors are CPU tensors to the dispatcher. A function mode takes ``device=`` out of calls
and notes where the tensor was to lie; ``.device``, ``is_cuda``, ``torch.cuda`` and ``autocast``
answer as they would on the target.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gobrrr.symbolic.graph_storages import TARGET, UNSTATED, Storages
from gobrrr.symbolic.stand_ins import StandIns, real_call, value_of
from gobrrr.symbolic.target.modules import (
    Replacements,
    replace_autocast,
    replace_device_module,
    replace_transfers,
)
from gobrrr.symbolic.values.assumed_values import assumption_of

_CHECKS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


@dataclass(frozen=True, slots=True)
class DeviceAnswers:
    """What a program may ask of the target.

    Attributes:
        type: PyTorch's device type, ``"cuda"`` (for AMD too), ``"xpu"``, ``"mps"``.
        name: as the driver gives it.
        memory_bytes: ``None`` if unknown.
        multiprocessors: ``None`` if unknown.
        capability: of CUDA devices; ``(0, 0)`` for others.
        bfloat16: whether there is a path for it.
    """

    type: str
    name: str
    memory_bytes: int | None
    multiprocessors: int | None
    capability: tuple[int, int]
    bfloat16: bool


class Switch(threading.local):
    """Whether this thread's program is asking (true), or the capture's own machinery (false).

    Only the threads of the step ask: in others stand-ins are what they are, for a thread that
    PyTorch's own code takes to a device that is not here does not come back.
    """

    def __init__(self, lock: Any) -> None:
        self.depth = 0
        self.of_step = False
        # Held by the thread whose operator is being dispatched.
        self.lock = lock

    @contextlib.contextmanager
    def off(self) -> Iterator[None]:
        """The machinery's own questions are answered truly."""
        import torch

        self.depth += 1
        try:
            with torch._C.DisableTorchFunction():
                yield
        finally:
            self.depth -= 1

    @property
    def on(self) -> bool:
        """Whether questions come from the program."""
        return self.depth == 0 and self.of_step


@lru_cache(maxsize=8)
def _answered_device(kind: str) -> Any:
    """The one object that programs get for the target's device, known again by identity."""
    import torch

    return torch.device(kind, 0)


def make_mode(answers: DeviceAnswers, stand_ins: StandIns, switch: Switch) -> Any:
    """The ``TorchFunctionMode``. Real tensors among arguments are replaced by stand-ins."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.overrides import TorchFunctionMode
    from torch.utils._device import _device_constructors

    storages = stand_ins.storages
    tensor = torch.Tensor
    factories = _device_constructors()
    target = _answered_device(answers.type)
    host = torch.device("cpu")
    unchecked: dict[Any, Any] = {}
    entered: list[Any] = []
    moves = {tensor.to, tensor.cpu, tensor.cuda, getattr(tensor, "xpu", tensor.cuda)}

    def device_of(value: Any) -> Any:
        return host if storages.is_on_host(value) else target

    answered: dict[Any, Callable[..., Any]] = {
        tensor.device.__get__: device_of,
        tensor.is_cuda.__get__: lambda t: device_of(t).type == "cuda",
        tensor.is_cpu.__get__: lambda t: device_of(t).type == "cpu",
        tensor.get_device: lambda t: -1 if device_of(t) == host else 0,
        tensor.pin_memory: lambda t, *_, **__: t,
        tensor.is_pinned: lambda t, *_, **__: device_of(t) == host,
        tensor.record_stream: lambda *_: None,
    }

    def place_named(device: Any) -> str | None:
        if device is None:
            return None
        if device is target:
            # ``device=x.device``: the answer given back names nothing.
            return TARGET
        if isinstance(device, int) and not isinstance(device, bool):
            storages.names_target = True
            return TARGET
        kind = torch.device(device).type
        if kind == "cpu":
            return UNSTATED
        if kind != "meta":
            storages.names_target = True
        return TARGET

    def move(func: Any, args: Any, kwargs: Any) -> Any:
        value, rest, options = args[0], list(args[1:]), dict(kwargs)
        if func is tensor.cpu:
            wanted, rest = UNSTATED, []
            options.pop("memory_format", None)
        elif func is not tensor.to:
            wanted, rest = TARGET, []
            storages.names_target = True
            options.pop("device", None)
        else:
            device = options.pop("device", None)
            like = rest[0] if rest and isinstance(rest[0], tensor) else None
            if like is not None:
                wanted = storages.place_of(like)
                rest[0] = like.dtype
            else:
                if rest and isinstance(rest[0], (str, torch.device, int)):
                    device = rest.pop(0)
                elif rest and rest[0] is None:
                    rest.pop(0)
                found = place_named(device)
                if found is None:
                    return func(*args, **kwargs)
                wanted = found
        options.pop("non_blocking", None)
        with switch.lock:
            return copied(value, wanted, rest, options)

    def copied(value: Any, wanted: str, rest: Any, options: dict[str, Any]) -> Any:
        # Positional non_blocking and copy after a dtype are dropped with the device.
        rest = [item for item in rest if isinstance(item, torch.dtype)]
        same = storages.place_of(value) == wanted
        if not same and not storages.of_step and not rest and "dtype" not in options:
            # While the program sets up, moving is not copying: parameters stay who they are.
            storages.put(value, wanted)
            return value
        if not same:
            options["copy"] = True
        if not rest and "dtype" not in options:
            rest = [value.dtype]
        if same:
            return tensor.to(value, *rest, **options)
        storages.moving_to = wanted
        try:
            return tensor.to(value, *rest, **options)
        finally:
            storages.moving_to = None

    def replaced(value: Any) -> Any:
        if isinstance(value, tensor):
            if isinstance(value, FakeTensor):
                return value
            with switch.lock, switch.off():
                return stand_ins.of(value)
        if type(value) in (list, tuple) and any(isinstance(item, tensor) for item in value):
            return type(value)(replaced(item) for item in value)
        return value

    def as_list(value: Any) -> Any:
        """One copy to the host; of values that nobody knows, each is what one of them is."""
        place = storages.place_of(value)
        if place == TARGET:
            value = move(tensor.cpu, (value,), {})
        known = value_of(value)
        if known is not None and place == UNSTATED and not storages.names_target and value.numel():
            # Where no device is named, one element that is read stands for the copy.
            value[(0,) * value.dim()].item()
        if known is None:
            item = value.flatten()[0].item() if value.numel() else None
            return _nested(item, tuple(map(int, value.shape)))
        stand_ins.decided_by(assumption_of(known))
        return real_call(tensor.tolist, (known,), {})

    def as_array(value: Any) -> Any:
        """The same as an array of numpy's."""
        item = value.detach().flatten()[0].item() if value.numel() else 0
        shape = tuple(map(int, value.shape))
        return real_call(lambda: torch.full(shape, item, dtype=value.dtype).numpy(), (), {})

    class TargetMode(TorchFunctionMode):  # type: ignore[misc]
        of_capture = True

        def __torch_function__(
            self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if not storages.open:
                return func(*args, **kwargs)
            args = tuple(replaced(value) for value in args)
            kwargs = {name: replaced(value) for name, value in kwargs.items()}
            answer = answered.get(func)
            if answer is not None:
                return answer(*args, **kwargs)
            if func in moves:
                return move(func, args, kwargs)
            if func is tensor.tolist:
                return as_list(args[0])
            if func is tensor.as_subclass and _adds_nothing(args[1]):
                return args[0]
            if func is tensor.numpy and (known := value_of(args[0])) is not None:
                return real_call(lambda: known.detach().numpy().copy(), (), {})
            if func is tensor.numpy and stand_ins.assumes_arrays:
                return as_array(args[0])
            if kinds and torch._C._is_torch_function_enabled():
                # What the functions of tensor classes call is to be seen too.
                with self:
                    for kind in kinds:
                        made = kind.__torch_function__(func, kinds, args, kwargs)
                        if made is not NotImplemented:
                            return made
            device = kwargs.get("device")
            if device is not None:
                wanted = place_named(device)
                kwargs = {**kwargs, "device": host}
                if wanted != TARGET:
                    return func(*args, **kwargs)
                # The operator is written down with the place of its result.
                former, storages.moving_to = storages.moving_to, wanted
                try:
                    made = func(*args, **kwargs)
                finally:
                    storages.moving_to = former
                if isinstance(made, tensor):
                    storages.put(made, wanted)
                return made
            if func in factories:
                return func(*args, **kwargs)
            if isinstance(func, types.FunctionType):
                body = unchecked.get(func)
                if body is None:
                    body = unchecked[func] = _without_checks(func)
                # A method of ``Tensor`` in Python may call the one in C of the same name.
                if body is not func and not (entered and entered[-1] is func):
                    # Its calls are to be seen, its own question whether we are here is not.
                    entered.append(func)
                    try:
                        with self:
                            return body(*args, **kwargs)
                    finally:
                        entered.pop()
            return func(*args, **kwargs)

    return TargetMode()


def _adds_nothing(kind: Any) -> bool:
    """Whether a class of tensors is another name for them: it has nothing of its own."""
    import torch

    own = {
        name for base in kind.__mro__ if not issubclass(torch.Tensor, base) for name in vars(base)
    }
    return own <= {"__module__", "__doc__", "__dict__", "__weakref__", "__firstlineno__",
                   "__static_attributes__"}  # fmt: skip


def _nested(item: Any, shape: tuple[int, ...]) -> Any:
    """``item`` at every place of nested lists."""
    return [_nested(item, shape[1:]) for _ in range(shape[0])] if shape else item


def _without_checks(function: types.FunctionType) -> types.FunctionType:
    """The same function, which does not ask whether a function mode is active.

    Returns ``function`` itself if it never asks, or asks in a way that cannot be replaced
    (``torch.nn.init``, whose calls need not be seen).
    """
    names = set(function.__code__.co_names) & set(function.__globals__)
    if not names.intersection(_CHECKS):
        return function
    scope = {**function.__globals__, **dict.fromkeys(_CHECKS, lambda *_: False)}
    body = types.FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, function.__closure__
    )
    body.__kwdefaults__ = function.__kwdefaults__
    return body


@contextlib.contextmanager
def answering(answers: DeviceAnswers, storages: Storages, switch: Switch) -> Iterator[None]:
    """Replaces what a function mode does not see, until the block ends."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    target, host = _answered_device(answers.type), torch.device("cpu")
    true_device = FakeTensor.device

    def device(self: Any) -> Any:
        if not switch.on or self.fake_mode.in_kernel_invocation:
            return true_device.fget(self)
        return host if storages.is_on_host(self) else target

    true_list = FakeTensor.tolist

    def as_list(self: Any) -> Any:
        # A stand-in's own asks for each element; as a tensor's it comes to the mode.
        asks = switch.on and torch._C._len_torch_function_stack()
        return torch.Tensor.tolist(self) if asks else true_list(self)

    with contextlib.ExitStack() as stack:
        put = Replacements()
        stack.callback(put.undo)
        # Recurrent modules ask it before they pack their weights, which stand-ins need not.
        put(torch.backends.cudnn, "is_acceptable", lambda *_: False)
        put(FakeTensor, "device", property(device, true_device.fset))
        put(FakeTensor, "tolist", as_list)
        _replace_device_hints(put, answers.type)
        put(torch.overrides, "has_torch_function", _overridden_by_program)
        replace_autocast(put, answers.type)
        replace_transfers(put, target)
        module = getattr(torch, answers.type, None)
        if module is not None:
            replace_device_module(put, module, answers)
        import torch.optim.optimizer as optimizers

        put(
            optimizers,
            "_foreach_supported_types",
            [*optimizers._foreach_supported_types, FakeTensor],
        )
        yield


def _overridden_by_program(arguments: Any) -> bool:
    """``has_torch_function``, to modules that have a fast path only where nothing is overridden.

    The capture's own mode is no matter of theirs: on the device there is none.
    """
    from torch import overrides
    from torch._C import _has_torch_function

    asking = str(sys._getframe(1).f_globals.get("__name__"))
    modes = overrides._get_current_function_mode_stack()
    ours = len(modes) == 1 and getattr(modes[0], "of_capture", False)
    if not ours or not asking.startswith("torch.nn.modules."):
        return bool(_has_torch_function(arguments))
    with overrides._pop_mode_temporarily():
        return bool(_has_torch_function(arguments))


def _replace_device_hints(put: Replacements, kind: str) -> None:
    """Shape rules that differ from device to device take the target's (``histc`` of integers)."""
    import torch._meta_registrations as rules
    import torch._refs.nn.functional as references

    for owner in (rules, references):
        original = getattr(owner, "device_hint", None)
        if original is not None:
            put(owner, "device_hint", lambda tensor, _of=original: (
                kind if _of(tensor) == "cpu" else _of(tensor)
            ))  # fmt: skip
