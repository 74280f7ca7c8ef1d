"""Tensors of a program's own classes, as stand-ins.

Two kinds: a *plain* subclass is a tensor with another class (``as_subclass``), a *wrapper* is a
shell around tensors of its own whose ``__torch_dispatch__`` says what an operator does to these
(quantised weights, masked tensors). The stand-in of the first is a fake tensor of a class that is
both; a wrapper stays what it is, around stand-ins, and its operators are those of its tensors.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from gobrrr.timeline.errors import InputError

# The class of which a fake tensor of a plain subclass is.
_KIND = "_gobrrr_kind"


@lru_cache(maxsize=1024)
def is_wrapper_class(kind: Any) -> bool:
    """Whether operators on tensors of a class are answered by the class."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    if not issubclass(kind, torch.Tensor) or issubclass(kind, FakeTensor):
        return False
    own: Any = kind.__torch_dispatch__
    return own is not torch.Tensor.__torch_dispatch__


def is_wrapper(tensor: Any) -> bool:
    """Whether a tensor is of such a class."""
    kind: Any = type(tensor)
    return is_wrapper_class(kind)


def wrapper_of(tensor: Any, stand_in_of: Callable[[Any], Any]) -> Any:
    """A wrapper around stand-ins; itself where its class does not say what it holds.

    What the latter holds gets its stand-ins where its operators arrive.
    """
    import torch

    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        return tensor
    names, context = flatten()
    held = {name: getattr(tensor, name) for name in names}
    # A class may hold what is no tensor, as ``DTensor`` does its mesh.
    inner = {
        name: stand_in_of(value) if isinstance(value, torch.Tensor) else value
        for name, value in held.items()
    }
    if all(inner[name] is value for name, value in held.items()):
        # Made during the capture, around stand-ins.
        return tensor
    made = type(tensor).__tensor_unflatten__(inner, context, tensor.size(), tensor.stride())
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
    return made.requires_grad_(tensor.requires_grad) if tensor.is_leaf else made


def tensors_of(tensor: Any) -> list[Any]:
    """The tensors that a wrapper holds, of wrappers within it too; of any other tensor, itself."""
    import torch

    if not is_wrapper(tensor):
        return [tensor]
    flatten = getattr(tensor, "__tensor_flatten__", None)
    names = vars(tensor) if flatten is None else flatten()[0]
    held = [getattr(tensor, name) for name in names]
    return [inner for one in held if isinstance(one, torch.Tensor) for inner in tensors_of(one)]


def plain_class(tensor: Any) -> Any:
    """The program's own class of a tensor that wraps nothing; ``None`` for one of torch's."""
    import torch

    kind: Any = type(tensor)
    if kind in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) or is_wrapper_class(kind):
        return None
    return kind


def take_class(stand_in: Any, kind: type) -> Any:
    """Make a stand-in, which nobody else holds, one of a plain subclass."""
    from torch._subclasses.fake_tensor import FakeTensor

    kind = getattr(kind, _KIND, kind)
    stand_in.__class__ = FakeTensor if issubclass(FakeTensor, kind) else _fake_class(kind)
    return stand_in


@lru_cache(maxsize=256)
def _fake_class(kind: type) -> type:
    """A class that is ``kind`` to the program and a fake tensor to PyTorch."""
    from torch._subclasses.fake_tensor import FakeTensor

    def fill(namespace: dict[str, Any]) -> None:
        namespace[_KIND] = kind
        namespace["__module__"] = kind.__module__

    return types.new_class(kind.__name__, (kind, _KeepsClass, FakeTensor), {}, fill)


class _KeepsClass:
    """What PyTorch does by default for a plain subclass: results are of the same class."""

    @classmethod
    def __torch_function__(
        cls, func: Any, kinds: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # fmt: skip
        import torch
        from torch.overrides import get_default_nowrap_functions

        own = getattr(cls, _KIND)
        if not all(issubclass(own, getattr(kind, _KIND, kind)) for kind in kinds):
            return NotImplemented
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
            if func in get_default_nowrap_functions():
                return result
            return torch._tensor._convert(result, cls)


@contextlib.contextmanager
def subclasses_kept(in_program: Callable[[], bool]) -> Iterator[None]:
    """Until the block ends stand-ins become tensors of a program's classes where it says so.

    ``in_program``: whether the program is running, not the capture's machinery.
    """
    import torch

    tensor = torch.Tensor
    as_subclass, make_subclass = tensor.as_subclass, tensor._make_subclass
    make_wrapper = tensor._make_wrapper_subclass

    def as_subclass_kept(self: Any, cls: type) -> Any:
        if not _is_stand_in(self):
            return as_subclass(self, cls)
        return take_class(torch.ops.aten.alias.default(self), cls)

    def make_subclass_kept(
        cls: type, data: Any, require_grad: bool = False, *args: Any, **kwargs: Any
    ) -> Any:
        if not _is_stand_in(data):
            return make_subclass(cls, data, require_grad, *args, **kwargs)
        refuse_lazy(cls)
        made = take_class(data.detach(), cls)
        return made.requires_grad_(require_grad)

    def make_wrapper_here(cls: type, *args: Any, **kwargs: Any) -> Any:
        if in_program() and kwargs.get("device") is not None:
            # To the dispatcher all that is captured lies here.
            kwargs["device"] = torch.device("cpu")
        return make_wrapper(cls, *args, **kwargs)

    replaced = {
        "as_subclass": as_subclass_kept,
        "_make_subclass": staticmethod(make_subclass_kept),
        "_make_wrapper_subclass": staticmethod(make_wrapper_here),
    }
    for name, function in replaced.items():
        setattr(tensor, name, function)
    try:
        yield
    finally:
        for name in replaced:
            delattr(tensor, name)


def refuse_lazy(kind: type) -> None:
    """Raises InputError for parameters and buffers whose shape the first call decides."""
    from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

    if issubclass(kind, (UninitializedParameter, UninitializedBuffer)):
        raise InputError(
            "a model with lazy modules (torch.nn.LazyLinear and the like) cannot be predicted: its "
            "parameters have no shape before the first call; give the sizes (torch.nn.Linear)"
        )


def _is_stand_in(value: Any) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(value, FakeTensor)
