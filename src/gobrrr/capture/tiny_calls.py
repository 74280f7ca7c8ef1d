"""A recorded operator call, rebuilt on tensors of one element: same code path, next to no work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gobrrr.timeline.ops import Arg, OpCall, TensorSpec

# Arguments that hold sizes of the original shapes, by the schemas' own names.
_SIZE_ARGUMENTS = frozenset(
    {"size", "sizes", "input_size", "input_sizes", "normalized_shape", "output_size", "self_size"}
)
# Only these namespaces are replayed: a custom operator may do anything when called.
REPLAYED_NAMESPACES = ("aten", "mkldnn", "mkldnn_prepacked")

TinyCall = tuple[Callable[..., Any], list[Any], dict[str, Any]]


class CannotShrinkError(Exception):
    """The call has no one-element version that is known to be valid."""


def tiny_call(call: OpCall, *, with_grad: bool) -> TinyCall:
    """Function, positional and keyword arguments of a one-element version of ``call``.

    ``with_grad``: floating inputs of out-of-place ops require grad, so that autograd's share of
    the dispatch is paid as in the recorded step. Raises ``CannotShrinkError``.
    """
    import torch

    namespace, _, name = call.name.partition("::")
    if namespace not in REPLAYED_NAMESPACES:
        raise CannotShrinkError(f"{call.name}: custom operators are not replayed")
    try:
        packet = getattr(getattr(torch.ops, namespace), name)
        overload = getattr(packet, call.overload) if call.overload else _fitting(packet, call)
    except AttributeError as error:
        raise CannotShrinkError(str(error)) from None
    arguments = overload._schema.arguments
    shapes = _SHAPES.get(name, _unit_shapes)(call)
    scalars = _SCALARS.get(name, {})
    grad = with_grad and not name.endswith("_") and not overload._schema.is_mutable
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    tensor_position = 0
    for argument, value in zip(arguments, call.args):
        if argument.name in scalars:
            made: Any = scalars[argument.name](call)
        elif argument.name in _SIZE_ARGUMENTS and isinstance(value, tuple):
            made = [1] * len(value)
        else:
            made, tensor_position = _rebuild(value, argument, shapes, tensor_position, grad)
        if argument.kwarg_only:
            keywords[argument.name] = made
        else:
            positional.append(made)
    return overload, positional, keywords


def _fitting(packet: Any, call: OpCall) -> Any:
    """The overload with the call's number and kind of arguments (a profile does not name it)."""
    for name in packet.overloads():
        overload = getattr(packet, name)
        arguments = overload._schema.arguments
        fits = len(arguments) == len(call.args) and all(
            ("Tensor" in str(argument.type)) >= isinstance(value, TensorSpec)
            for argument, value in zip(arguments, call.args)
        )
        if fits and not name.endswith("out"):
            return overload
    raise CannotShrinkError(f"{call.name}: no overload with {len(call.args)} such arguments")


def _rebuild(value: Arg, argument: Any, shapes: list[Any], at: int, grad: bool) -> tuple[Any, int]:
    import torch

    if isinstance(value, TensorSpec):
        return _tiny_tensor(value, shapes[at], grad), at + 1
    if isinstance(value, tuple):
        made = []
        for item in value:
            one, at = _rebuild(item, argument, shapes, at, grad)
            made.append(one)
        return made, at
    if isinstance(value, str):
        kind = str(argument.real_type if hasattr(argument, "real_type") else argument.type)
        if "Device" in kind:
            return torch.device(value), at
        if any(word in kind for word in ("ScalarType", "Layout", "MemoryFormat")):
            found = getattr(torch, value.removeprefix("torch."), None)
            if found is None:
                raise CannotShrinkError(f"{value} is not a name in torch")
            return found, at
    return value, at


def _tiny_tensor(spec: TensorSpec, shape: tuple[int, ...], grad: bool) -> Any:
    import torch

    dtype = getattr(torch, spec.dtype, None)
    if dtype is None or (spec.device and not spec.device.startswith("cpu")):
        raise CannotShrinkError(f"a {spec.dtype} tensor on {spec.device}")
    if dtype.is_floating_point or dtype.is_complex:
        made = torch.ones(shape, dtype=dtype)
        return made.requires_grad_() if grad else made
    # Indices and class labels: 0 is valid in a dimension of length 1.
    return torch.zeros(shape, dtype=dtype)


def _unit_shapes(call: OpCall) -> list[tuple[int, ...]]:
    return [tuple(min(1, n) for n in tensor.shape) for tensor in call.tensors]


def _ints(value: Arg, length: int) -> list[int]:
    if isinstance(value, tuple):
        values = [v for v in value if isinstance(v, int)]
        return values if len(values) == length else (values or [1]) * length
    return [value if isinstance(value, int) else 1] * length


def _convolution_shapes(call: OpCall) -> list[tuple[int, ...]]:
    # (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups): one
    # channel, the kernel's own extent, and the smallest input that gives one output.
    tensors = call.tensors
    kernel = tensors[1].shape[2:]
    spatial = len(kernel)
    padding, dilation = _ints(call.args[4], spatial), _ints(call.args[5], spatial)
    transposed = bool(call.args[6])
    extent = [
        2 * p + 1 if transposed else max(1, d * (k - 1) + 1 - 2 * p)
        for k, p, d in zip(kernel, padding, dilation)
    ]
    bias = [(1,)] if len(tensors) > 2 else []
    return [(1, 1, *extent), (1, 1, *kernel), *bias]


def _convolution_backward_shapes(call: OpCall) -> list[tuple[int, ...]]:
    # (grad, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, ...)
    kernel = call.tensors[2].shape[2:]
    spatial = len(kernel)
    stride, padding = _ints(call.args[4], spatial), _ints(call.args[5], spatial)
    dilation = _ints(call.args[6], spatial)
    if call.args[7]:
        extra = _ints(call.args[8], spatial)
        extent = [2 * p + 1 for p in padding]
        out = [
            (n - 1) * s - 2 * p + d * (k - 1) + o + 1
            for n, s, p, d, k, o in zip(extent, stride, padding, dilation, kernel, extra)
        ]
    else:
        extent = [max(1, d * (k - 1) + 1 - 2 * p) for k, p, d in zip(kernel, padding, dilation)]
        out = [
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, s, p, d, k in zip(extent, stride, padding, dilation, kernel)
        ]
    return [(1, 1, *out), (1, 1, *extent), (1, 1, *kernel)]


def _pooling_shapes(call: OpCall) -> list[tuple[int, ...]]:
    (tensor,) = call.tensors[:1]
    spatial = 3 if "3d" in call.name else 2 if "2d" in call.name else 1
    kernel = _ints(call.args[1], spatial)
    return [(*(1,) * (len(tensor.shape) - spatial), *kernel)]


def _pooling_backward_shapes(call: OpCall) -> list[tuple[int, ...]]:
    # (grad, input, kernel, stride, padding, ...[, indices]): one window, so one output.
    spatial = 3 if "3d" in call.name else 2 if "2d" in call.name else 1
    tensors = call.tensors
    kernel = _ints(call.args[2], spatial)
    padding = _ints(call.args[4], spatial)
    lead = (1,) * (len(tensors[1].shape) - spatial)
    extent = [max(1, k - 2 * p) for k, p in zip(kernel, padding)]
    unit = (*lead, *(1,) * spatial)
    return [unit, (*lead, *extent), *(unit for _ in tensors[2:])]


_SHAPES: dict[str, Callable[[OpCall], list[tuple[int, ...]]]] = {
    "convolution": _convolution_shapes,
    "_convolution": _convolution_shapes,
    "convolution_backward": _convolution_backward_shapes,
    "max_pool2d_with_indices": _pooling_shapes,
    "max_pool3d_with_indices": _pooling_shapes,
    "avg_pool2d": _pooling_shapes,
    "avg_pool3d": _pooling_shapes,
    "max_pool2d_with_indices_backward": _pooling_backward_shapes,
    "avg_pool2d_backward": _pooling_backward_shapes,
}


def _one(call: OpCall) -> int:
    return 1


def _zero(call: OpCall) -> int:
    return 0


def _one_bias(call: OpCall) -> list[int] | None:
    return None if call.args[3] is None else [1]


# Scalar arguments that must follow the shapes.
_SCALARS: dict[str, dict[str, Callable[[OpCall], Any]]] = {
    "native_group_norm": {"N": _one, "C": _one, "HxW": _one, "group": _one},
    "native_group_norm_backward": {"N": _one, "C": _one, "HxW": _one, "group": _one},
    "convolution": {"groups": _one},
    "_convolution": {"groups": _one},
    "convolution_backward": {"groups": _one, "bias_sizes": _one_bias},
    "embedding_dense_backward": {"num_weights": _one, "padding_idx": lambda call: -1},
    "embedding": {"padding_idx": lambda call: -1},
    "slice_backward": {"start": _zero, "end": _one, "step": _one},
    "select_backward": {"index": _zero},
    "topk": {"k": _one},
    "arange": {"start": _zero, "end": _one, "step": _one},
    "randperm": {"n": _one},
    "eye": {"n": _one, "m": _one},
    "new_empty_strided": {"stride": lambda call: [1] * len(call.args[2] or ())},  # type: ignore[arg-type]
    "linspace": {"steps": _one},
    "_embedding_bag_dense_backward": {"num_weights": _one},
}
