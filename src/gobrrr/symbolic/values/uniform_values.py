"""Values that are the same everywhere: a mask of ones is known whatever its size.

The value of a stand-in is a real tensor; that of a uniform one is a single element expanded to the
stand-in's shape (strides of zero), which takes no memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_FACTORIES = {
    "ones": 1, "ones_like": 1, "new_ones": 1, "zeros": 0, "zeros_like": 0, "new_zeros": 0,
    "zero_": 0,
}  # fmt: skip
# Position of the value among the arguments.
_FILLS = {"full": 1, "full_like": 1, "new_full": 2, "fill_": 1, "fill": 1}
# Every element of the result is one of the first argument's, whatever the others are.
_CHOOSE = frozenset(
    {
        "alias", "clone", "contiguous", "detach", "diagonal", "expand", "flip", "gather", "index",
        "index_select", "permute", "repeat", "roll", "select", "slice", "split", "split_with_sizes",
        "squeeze", "t", "take", "transpose", "unbind", "unfold", "unsqueeze", "view",
        "_reshape_alias", "_unsafe_view", "reshape", "lift_fresh", "lift", "chunk", "movedim",
        "narrow",
    }
)  # fmt: skip
_EXTREMES = frozenset({"all", "any", "amax", "amin", "max", "min", "mean"})
_JOINED = frozenset({"cat", "stack"})
_FROM_FIRST = _CHOOSE | _EXTREMES | {"_to_copy", "constant_pad_nd", "sum"}
_WORTH_ASKING: dict[Any, str] = {}


def is_uniform(value: Any) -> bool:
    """Whether a real tensor is one element expanded."""
    return value.numel() > 0 and all(
        stride == 0 or size == 1 for size, stride in zip(value.shape, value.stride())
    )


def expanded(element: Any, shape: Any) -> Any:
    """A one-element tensor at every place of ``shape``."""
    return element.reshape(()).expand(tuple(map(int, shape)))


def as_uniform(tensor: Any) -> Any:
    """A real tensor as one element expanded, on the CPU; ``None`` if its elements differ.

    Two elements are compared before all are, so that tensors of data cost next to nothing.
    """
    if str(tensor.layout) != "torch.strided" or not tensor.numel() or tensor.is_complex():
        return None
    first, last = tensor[(0,) * tensor.dim()], tensor[(-1,) * tensor.dim()]
    if not bool(_comparable(first) == _comparable(last)):
        return None
    if not is_uniform(tensor):
        seen = _comparable(tensor)
        least, most = (seen.all(), seen.any()) if _is_bool(tensor) else seen.aminmax()
        if not bool(least == most):
            return None
    return expanded(first.detach().to("cpu", copy=True), tensor.shape)


def may_be_uniform(func: Any, args: Any, value_of: Callable[..., Any]) -> bool:
    """Whether ``uniform_result`` is worth its time: a cheap test that most operators fail."""
    import torch

    known = _WORTH_ASKING.get(func)
    if known is None:
        name = func._schema.name.partition("::")[2]
        if func.namespace != "aten":
            known = "no"
        elif name in _FACTORIES or name in _FILLS:
            known = "yes"
        elif name == "copy_":
            known = "second"
        elif name in _JOINED:
            known = "list"
        elif name in _FROM_FIRST or torch.Tag.pointwise in func.tags:
            known = "first"
        else:
            known = "no"
        _WORTH_ASKING[func] = known
    if known in ("yes", "no") or not args:
        return known == "yes"
    if known == "list":
        first = args[0][0] if args[0] else None
    else:
        first = args[0 if known == "first" else 1]
    return isinstance(first, torch.Tensor) and value_of(first) is not None


def uniform_result(
    func: Any, args: Any, kwargs: Any, outputs: list[Any], value_of: Callable[..., Any]
) -> Any:
    """The one element of ``func``'s result, if all of its elements are the same.

    Args:
        func: an operator of ``aten``.
        args: its positional arguments, stand-ins among them.
        kwargs: the others.
        outputs: the stand-ins that it returned.
        value_of: the known value of a stand-in, ``None`` if unknown.

    Returns:
        A real tensor of one element, of the result's dtype; ``None`` if it cannot be told. It runs
        real operators: call it where that is allowed.
    """
    import torch

    if not outputs or "out" in kwargs:
        return None
    name, dtype = func._schema.name.partition("::")[2], outputs[0].dtype
    if any(output.dtype != dtype for output in outputs):
        return None
    if name in _FACTORIES:
        return torch.full((), _FACTORIES[name], dtype=dtype)
    if name in _FILLS:
        filling = args[_FILLS[name]] if len(args) > _FILLS[name] else None
        if isinstance(filling, torch.Tensor):
            filling = _element(value_of(filling))
        return None if filling is None else torch.full((), _number(filling), dtype=dtype)
    if name == "copy_":
        source = _element(value_of(args[1]))
        return None if source is None else source.to(dtype)
    if name in _JOINED:
        return _same([_element(value_of(item)) for item in args[0]], dtype)
    first = _element(value_of(args[0])) if args and isinstance(args[0], torch.Tensor) else None
    if first is None:
        return None
    if name in _CHOOSE:
        return first if first.dtype == dtype else None
    if name == "_to_copy":
        return first.to(dtype)
    if name == "constant_pad_nd":
        padding = args[2] if len(args) > 2 else 0
        return first if first.item() == padding else None
    if name in _EXTREMES:
        return first.to(dtype)
    if name == "sum":
        count = args[0].numel() // max(outputs[0].numel(), 1)
        return torch.full((), first.item() * count, dtype=dtype)
    return _pointwise(func, args, kwargs, value_of) if torch.Tag.pointwise in func.tags else None


def _comparable(tensor: Any) -> Any:
    """Numbers of 8-bit floating point as their bits: a CPU does not compare them."""
    import torch

    if tensor.dtype.is_floating_point and tensor.dtype.itemsize == 1:
        return tensor.view(torch.uint8)
    return tensor


def _is_bool(tensor: Any) -> bool:
    return bool(str(tensor.dtype) == "torch.bool")


def _number(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _element(value: Any) -> Any:
    """The one element of a uniform value, as a tensor without dimensions."""
    if value is None or not is_uniform(value):
        return None
    return value[(0,) * value.dim()]


def _same(elements: list[Any], dtype: Any) -> Any:
    if not elements or any(element is None for element in elements):
        return None
    if any(element.item() != elements[0].item() for element in elements):
        return None
    return elements[0].to(dtype)


def _pointwise(func: Any, args: Any, kwargs: Any, value_of: Callable[..., Any]) -> Any:
    """An operator on one element of each argument, with as many dimensions as it had.

    Dimensions take part in the choice of the result's dtype.
    """
    import torch

    given: list[Any] = []
    for item in args:
        if isinstance(item, torch.Tensor):
            element = _element(value_of(item))
            if element is None:
                return None
            item = element.reshape((1,) * item.dim()).clone()
        elif isinstance(item, (list, tuple)) and any(isinstance(i, torch.Tensor) for i in item):
            return None
        given.append(item)
    made = func(*given, **kwargs)
    return made.reshape(()) if isinstance(made, torch.Tensor) else None
