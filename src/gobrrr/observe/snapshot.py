"""Put a program's state back as it was: everything a step can reach, and the random generators."""

from __future__ import annotations

import copy
import inspect
import math
import random
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from gobrrr.devices import backends
from gobrrr.devices.accelerator import free_bytes
from gobrrr.measure.process_memory import free_memory_bytes

# Attributes and items of these are plain values: nothing to walk into.
_ATOMS = (
    int, float, complex, bool, str, bytes, type(None), type, types.ModuleType,
    types.BuiltinFunctionType, types.CodeType, range, slice,
)  # fmt: skip
MOST_OBJECTS = 200_000
# Copies lie on their device while they take less than this of what is free there: the steps that
# are to come, of which nothing is known yet, need room for their activations.
_SHARE_OF_FREE = 0.1
# Of the host's free memory a single copy may take: a container's limit may be one that nobody told.
_SHARE_OF_HOST = 0.5
# Objects of these packages hold the interpreter's or torch's machinery, not the program's state.
_MACHINERY = (
    "logging", "threading", "concurrent", "asyncio", "multiprocessing", "importlib",
    "torch._dynamo", "torch._inductor", "torch._functorch", "torch._C", "torch._ops",
    "torch.distributed.distributed_c10d", "gobrrr.symbolic.ranks.tensor_parallel",
)  # fmt: skip
# Where a tensor keeps the hooks that are called with its gradient, and once that is in place.
HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


class Snapshot:
    """State reachable from some roots, taken when made, put back by ``restore``.

    Walks closures, defaults, the globals that a function names, ``self``, containers and the
    attributes of objects. Tensors are copied and written back in place, so that every reference
    stays valid; containers and object attributes get their former contents back. ``not_rewound``
    names what cannot be put back (an iterator, a generator, an open file). Copies of much of a
    device's memory lie in the host's. Raises MemoryError if there is no room there either.
    """

    def __init__(self, *roots: Any) -> None:
        self.not_rewound: list[str] = []
        self._tensors: list[tuple[Any, Any, Any, Any]] = []
        self._restorers: list[Callable[[], None]] = []
        self._keep: list[Any] = []
        self._seen: set[int] = set()
        # Bytes that copies may still take on each device.
        self._room: dict[Any, float] = {}
        self._rng = _rng_restorers()
        stack: list[tuple[Any, str]] = [(root, "") for root in roots]
        while stack and len(self._seen) < MOST_OBJECTS:
            value, path = stack.pop()
            stack.extend(self._visit(value, path))

    @property
    def tensors(self) -> list[Any]:
        """The tensors reached, in the order of the walk."""
        return [tensor for tensor, _, _, _ in self._tensors]

    def restore(self) -> None:
        """Put everything back."""
        import torch

        with torch.no_grad():
            for restorer in self._restorers:
                restorer()
            for tensor, data, grad, grad_data in self._tensors:
                if data is not None:
                    # .data, so that saved versions and leaf checks do not object.
                    # Nested tensors of the strided layout have no shape, and nothing resizes them.
                    if not tensor.is_nested and tensor.data.shape != data.shape:
                        tensor.data = data.to(tensor.device, copy=True)
                    else:
                        tensor.data.copy_(data)
                if tensor.is_leaf:
                    if grad is not None and grad_data is not None:
                        grad.data.copy_(grad_data)
                    if tensor.grad is not grad:
                        tensor.grad = grad
        for restorer in self._rng:
            restorer()

    # Walking

    def _visit(self, value: Any, path: str) -> Iterator[tuple[Any, str]]:
        if isinstance(value, _ATOMS) or id(value) in self._seen:
            return
        self._seen.add(id(value))
        self._keep.append(value)
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            self._take_tensor(value)
            yield from ((hook, path) for hook in hooks_of(value))
        elif torch is not None and isinstance(value, torch.Generator):
            state = value.get_state()
            self._restorers.append(lambda: value.set_state(state) and None)
        elif isinstance(value, random.Random):
            python_state = value.getstate()
            self._restorers.append(lambda: value.setstate(python_state))
        elif isinstance(value, types.FunctionType):
            if not (value.__module__ or "").startswith(_MACHINERY):
                yield from _reached_by_function(value, path)
        elif isinstance(value, types.MethodType):
            yield value.__self__, path
            yield value.__func__, path
        elif isinstance(value, partial):
            yield from ((part, path) for part in (value.func, value.args, value.keywords))
        elif isinstance(value, dict):
            yield from self._take_dict(value, path)
        elif isinstance(value, (list, set, bytearray)) or _is_deque(value):
            yield from self._take_container(value, path)
        elif isinstance(value, (tuple, frozenset)):
            for item in value:
                yield item, path
        elif _is_numpy_array(value):
            array_copy = value.copy()
            self._restorers.append(lambda: value.__setitem__(..., array_copy))
        elif _is_iterator(value):
            self.not_rewound.append(path or type(value).__name__)
        elif not type(value).__module__.startswith(_MACHINERY):
            yield from self._take_object(value, path)

    def _take_tensor(self, tensor: Any) -> None:
        import torch

        data = grad_data = None
        try:
            with torch.no_grad():
                if tensor.layout == torch.strided and tensor.device.type != "meta":
                    data = self._copied(tensor.data)
                grad = tensor.grad if tensor.is_leaf else None
                if grad is not None and grad.layout == torch.strided:
                    grad_data = self._copied(grad.data)
        except (RuntimeError, NotImplementedError):
            self.not_rewound.append(f"a tensor of type {type(tensor).__name__}")
            return
        self._tensors.append((tensor, data, grad, grad_data))

    def _copied(self, data: Any) -> Any:
        import torch

        device, size = data.device, data.nbytes
        if device not in self._room:
            free = free_bytes(device)
            self._room[device] = math.inf if free is None else _SHARE_OF_FREE * free
        if size <= self._room[device]:
            self._room[device] -= size
            try:
                return data.clone()
            except torch.OutOfMemoryError:
                # What is free may lie in pieces.
                self._room[device] = 0
        host = free_memory_bytes()
        if host is not None and size > _SHARE_OF_HOST * host:
            raise MemoryError
        # Not pinned: PyTorch keeps pinned memory until the process ends, in powers of two, and to
        # pin it takes longer than this one copy.
        return data.to("cpu", copy=True)

    def _take_dict(self, value: dict[Any, Any], path: str) -> Iterator[tuple[Any, str]]:
        items = dict(value)

        def put_back() -> None:
            if len(value) != len(items) or any(
                key not in value or value[key] is not item for key, item in items.items()
            ):
                value.clear()
                value.update(items)

        self._restorers.append(put_back)
        for key, item in items.items():
            yield item, f"{path}.{key}" if path else str(key)

    def _take_container(self, value: Any, path: str) -> Iterator[tuple[Any, str]]:
        contents = copy.copy(value)

        def put_back() -> None:
            if isinstance(value, (list, bytearray)):
                value[:] = contents
            else:
                value.clear()
                for item in contents:
                    (value.add if isinstance(value, set) else value.append)(item)

        self._restorers.append(put_back)
        if not isinstance(value, bytearray):
            for item in contents:
                yield item, path

    def _take_object(self, value: Any, path: str) -> Iterator[tuple[Any, str]]:
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            yield from self._visit(attributes, path)
        for slot in _slots(type(value)):
            try:
                item = getattr(value, slot)
            except AttributeError:
                continue
            yield item, f"{path}.{slot}"


def hooks_of(tensor: Any, kinds: tuple[str, ...] = HOOKS) -> list[Any]:
    """The functions that a program registered with a leaf, for its gradient."""
    if not (tensor.is_leaf and tensor.requires_grad):
        return []
    return [hook for kind in kinds for hook in (getattr(tensor, kind, None) or {}).values()]


def _reached_by_function(function: types.FunctionType, path: str) -> Iterator[tuple[Any, str]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            yield cell.cell_contents, name
        except ValueError:
            continue
    yield function.__defaults__ or (), path
    yield function.__kwdefaults__ or {}, path
    for name in _global_names(function.__code__):
        value = function.__globals__.get(name)
        # Functions of libraries are not walked: their globals are the library's own business.
        if isinstance(value, types.FunctionType) and value.__globals__ is not function.__globals__:
            continue
        yield value, name


def _global_names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in ("__dict__", "__weakref__"):
                yield slot


def _is_deque(value: Any) -> bool:
    return type(value).__module__ == "collections" and type(value).__name__ == "deque"


def _is_numpy_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray) and value.dtype != object


def _is_iterator(value: Any) -> bool:
    if inspect.isgenerator(value) or hasattr(value, "fileno"):
        return True
    return hasattr(type(value), "__next__")


def _rng_restorers() -> list[Callable[[], None]]:
    restorers: list[Callable[[], None]] = []
    python_state = random.getstate()
    restorers.append(lambda: random.setstate(python_state))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy_state = numpy.random.get_state()
        restorers.append(lambda: numpy.random.set_state(numpy_state))
    torch = sys.modules.get("torch")
    if torch is not None:
        torch_state = torch.get_rng_state()
        restorers.append(lambda: torch.set_rng_state(torch_state))
        for backend in backends.BACKENDS:
            if states := backend.random_states():
                restorers.append(partial(backend.set_random_states, states))
        modes = (torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads())
        restorers.append(lambda: torch.set_grad_enabled(modes[0]) and None)
        restorers.append(lambda: torch.set_default_dtype(modes[1]))
        restorers.append(lambda: torch.set_num_threads(modes[2]))
    return restorers


@contextmanager
def state_put_back(roots: tuple[Any, ...], notices: list[str]) -> Iterator[None]:
    """All that can be reached from some roots is afterwards as it was; adds what was not."""
    snapshot = None
    try:
        snapshot = Snapshot(*roots)
    except (MemoryError, RuntimeError) as error:
        notices.append(f"State is not restored: copying it failed ({type(error).__name__}).")
    if snapshot is None:
        # Not while the error is held: it holds what was copied before it came.
        yield
        return
    if snapshot.not_rewound:
        names = ", ".join(sorted(set(snapshot.not_rewound))[:5])
        notices.append(f"The measured steps consumed state that cannot be restored: {names}.")
    try:
        yield
    finally:
        snapshot.restore()
