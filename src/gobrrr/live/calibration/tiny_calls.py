"""A recorded operator call, rebuilt on tensors of one element: same code path, next to no work.

Only operators of ``safe_ops`` are rebuilt, and only what PyTorch itself runs for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gobrrr.live.calibration.safe_ops import is_safe_to_shrink
from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
from gobrrr.work.traffic import is_sparse

# Arguments that hold sizes of the original shapes, by the schemas' own names.
_SIZE_ARGUMENTS = frozenset(
    {"size", "sizes", "input_size", "input_sizes", "normalized_shape", "output_size", "self_size"}
)
# Keys of the dispatcher under which a program's own kernel would be called for a plain tensor.
_KEYS_OF_CPU_CALLS = frozenset(
    {"CPU", "AutogradCPU", "Autograd", "ADInplaceOrView", "AutocastCPU",
     "CompositeImplicitAutograd", "CompositeExplicitAutograd"}
)  # fmt: skip
# Divisors: 0 is no valid one for integers.
_DIVISIONS = frozenset(
    {"div", "floor_divide", "remainder", "fmod", "_foreach_div"}
)  # fmt: skip

TinyCall = tuple[Callable[..., Any], list[Any], dict[str, Any]]


class CannotShrinkError(Exception):
    """The call has no one-element version that is known to be valid."""


def tiny_call(call: OpCall, *, with_grad: bool, replaced: frozenset[str] | None = None) -> TinyCall:
    """Function, positional and keyword arguments of a one-element version of ``call``.

    ``with_grad``: floating inputs of out-of-place ops require grad, so that autograd's share of
    the dispatch is paid as in the recorded step. ``replaced``: ``replaced_by_program()``, where it
    is at hand. Raises ``CannotShrinkError``.
    """
    import torch

    if not is_safe_to_shrink(call.name):
        raise CannotShrinkError(f"{call.name} is not known to be safe on other sizes")
    if call.name in (replaced_by_program() if replaced is None else replaced):
        raise CannotShrinkError(f"{call.name} has a kernel of the program's own")
    name = call.name.partition("::")[2]
    try:
        overload = getattr(getattr(torch.ops.aten, name), call.overload or "default")
    except AttributeError as error:
        raise CannotShrinkError(str(error)) from None
    arguments = overload._schema.arguments
    if any(argument.is_out for argument in arguments):
        # The result's shape decides whether ``out`` is resized.
        raise CannotShrinkError(f"{call.name} writes into a tensor given as out=")
    shapes = _SHAPES.get(name, _unit_shapes)(call)
    scalars = {**_SCALARS_OF_ALL, **_SCALARS.get(name, {})}
    integer = 1 if name.removesuffix("_") in _DIVISIONS else 0
    grad = with_grad and not name.endswith("_") and not overload._schema.is_mutable
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    tensor_position = 0
    for argument, value in zip(arguments, call.args):
        if value is None and not isinstance(argument.type, torch.OptionalType):
            raise CannotShrinkError(f"{call.name}: {argument.name} is of a kind that is not kept")
        if argument.name in scalars and value is not None:
            made: Any = scalars[argument.name](value)
        elif argument.name in _SIZE_ARGUMENTS and isinstance(value, tuple):
            made = [1] * len(value)
        else:
            fill = _Fill(grad, integer)
            made, tensor_position = _rebuild(value, argument, shapes, tensor_position, fill)
        if argument.kwarg_only:
            keywords[argument.name] = made
        else:
            positional.append(made)
    return overload, positional, keywords


def replaced_by_program() -> frozenset[str]:
    """Operators of PyTorch for which Python code has registered a kernel (``torch.library``)."""
    import torch

    registered = getattr(torch.library, "_impls", None)
    if registered is None:
        return frozenset()
    found = set()
    for key in list(registered):
        namespace, _, rest = key.partition("/")
        overload, _, dispatch_key = rest.rpartition("/")
        if namespace == "aten" and dispatch_key in _KEYS_OF_CPU_CALLS:
            found.add(f"aten::{overload.partition('.')[0]}")
    return frozenset(found)


class _Fill(NamedTuple):
    """What new tensors are: whether floating ones require grad, and the value of integers."""

    grad: bool
    integer: int


def _rebuild(value: Arg, argument: Any, shapes: list[Any], at: int, fill: _Fill) -> tuple[Any, int]:
    import torch

    if isinstance(value, TensorSpec):
        return _tiny_tensor(value, shapes[at], fill), at + 1
    if is_sparse(value):
        raise CannotShrinkError(f"{argument.name} is a sparse tensor")
    if isinstance(value, tuple):
        made = []
        for item in value:
            one, at = _rebuild(item, argument, shapes, at, fill)
            made.append(one)
        return made, at
    if isinstance(value, str):
        kind = str(argument.real_type if hasattr(argument, "real_type") else argument.type)
        if "Device" in kind:
            if not value.startswith("cpu"):
                raise CannotShrinkError(f"a tensor on {value}")
            return torch.device(value), at
        if any(word in kind for word in ("ScalarType", "Layout", "MemoryFormat")):
            found = getattr(torch, value.removeprefix("torch."), None)
            if found is None:
                raise CannotShrinkError(f"{value} is not a name in torch")
            return found, at
    return value, at


def _tiny_tensor(spec: TensorSpec, shape: tuple[int, ...], fill: _Fill) -> Any:
    import torch

    dtype = getattr(torch, spec.dtype, None)
    if dtype is None or (spec.device and not spec.device.startswith("cpu")):
        raise CannotShrinkError(f"a {spec.dtype} tensor on {spec.device}")
    if spec.strides is None or spec.dtype.startswith(("q", "bits")):
        raise CannotShrinkError(f"a {spec.dtype} tensor in a layout of its own")
    if dtype.is_floating_point or dtype.is_complex:
        made = torch.ones(shape, dtype=dtype, device="cpu")
        return made.requires_grad_() if fill.grad else made
    # Indices and class labels: 0 is valid in a dimension of length 1.
    return torch.full(shape, fill.integer, dtype=dtype, device="cpu")


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


def _spread_shapes(call: OpCall) -> list[tuple[int, ...]]:
    """Of one element a spread is none, and torch warns each time."""
    return [tuple(min(2, n) for n in tensor.shape) for tensor in call.tensors]


_SHAPES: dict[str, Callable[[OpCall], list[tuple[int, ...]]]] = {
    **dict.fromkeys(("std", "var", "std_mean", "var_mean"), _spread_shapes),
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


def _one(value: Arg) -> int:
    return 1


def _zero(value: Arg) -> int:
    return 0


def _ones(value: Arg) -> list[int]:
    return [1] * len(value) if isinstance(value, tuple) else [1]


def _zeros(value: Arg) -> list[int]:
    return [0] * len(value) if isinstance(value, tuple) else [0]


def _no_scale(value: Arg) -> Any:
    return [1.0] * len(value) if isinstance(value, tuple) else None


# Scalar arguments that must follow the shapes: of every operator that has them, by name.
_SCALARS_OF_ALL: dict[str, Callable[[Arg], Any]] = {
    "scale_factors": _no_scale, "scales": _no_scale, "scales_h": _no_scale,
    "scales_w": _no_scale, "scales_d": _no_scale,
}  # fmt: skip
# And by operator.
_SCALARS: dict[str, dict[str, Callable[[Arg], Any]]] = {
    "native_group_norm": {"N": _one, "C": _one, "HxW": _one, "group": _one},
    "native_group_norm_backward": {"N": _one, "C": _one, "HxW": _one, "group": _one},
    "convolution": {"groups": _one},
    "_convolution": {"groups": _one},
    "convolution_backward": {"groups": _one, "bias_sizes": _ones},
    "embedding_dense_backward": {"num_weights": _one, "padding_idx": lambda value: -1},
    "embedding": {"padding_idx": lambda value: -1},
    "slice_backward": {"start": _zero, "end": _one, "step": _one},
    "slice_scatter": {"start": _zero, "end": _one, "step": _one},
    "select_backward": {"index": _zero},
    "select_scatter": {"index": _zero},
    "topk": {"k": _one},
    "kthvalue": {"k": _one},
    "arange": {"start": _zero, "end": _one, "step": _one},
    "randperm": {"n": _one},
    "eye": {"n": _one, "m": _one},
    "linspace": {"steps": _one},
    "repeat": {"repeats": _ones},
    "multinomial": {"num_samples": _one},
    "diag_embed": {"offset": _zero},
    "diagonal_copy": {"offset": _zero},
    "constant_pad_nd": {"pad": _zeros},
    "_fft_c2r": {"last_dim_size": _one},
    # One value has no spread about its mean; torch warns of it.
    **{name: {"correction": _zero} for name in ("var", "std", "var_mean", "std_mean")},
    **{
        f"{kind}_pad{n}d{end}": {"padding": _zeros}
        for kind in ("reflection", "replication") for n in (1, 2) for end in ("", "_backward")
    },
}  # fmt: skip
