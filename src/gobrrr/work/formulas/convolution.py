"""Convolutions, forward and backward, of every backend and spelling.

Each output pixel (each input pixel, if transposed) meets the whole weight once per image: 2 x
images x pixels x elements of the weight, the same for grouped and depthwise weights, whose channel
dimension is already divided by the groups. Each of the gradients of input and weight costs as much
again. Products with padding count, and the bias does not, as in ``torch.utils.flop_counter``. (For
the gradient of a grouped weight that counts ``groups`` times too many; here it is as above.)
"""

from __future__ import annotations

from typing import NamedTuple

from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.formulas.contractions import output_mask
from gobrrr.work.registry import add_formula, formula
from gobrrr.work.traffic import account, destinations, integers, need, product, tensor_at
from gobrrr.work.traits import Role, Traits, state_traits


class Layout(NamedTuple):
    """Where a convolution operator has its arguments; -1 where it has none.

    ``transposed``: a position, or ``True``/``False`` if the operator's name says it.
    ``groups`` only matters for the channels of a transposed result.
    """

    arity: int
    bias: int
    stride: int
    padding: int
    dilation: int
    transposed: int | bool = False
    output_padding: int = -1
    groups: int = -1
    addend: int = -1


_PLAIN = Layout(7, 2, 3, 4, 5)
_FULL = Layout(9, 2, 3, 4, 5, 6, 7, 8)
_TRANSPOSED = Layout(8, 2, 3, 4, 7, True, 5, 6)
_SLOW = Layout(7, 3, 4, 5, 6)

LAYOUTS: dict[str, Layout] = {
    "aten::convolution": _FULL,
    "aten::convolution_overrideable": _FULL,
    "aten::_convolution": _FULL._replace(arity=13),
    "aten::cudnn_convolution": Layout(9, -1, 3, 2, 4),
    "aten::cudnn_convolution_transpose": Layout(10, -1, 4, 2, 5, True, 3, 6),
    "aten::cudnn_convolution_relu": Layout(7, 2, 3, 4, 5),
    "aten::cudnn_convolution_add_relu": Layout(9, 4, 5, 6, 7, addend=2),
    "aten::miopen_convolution": Layout(9, 2, 4, 3, 5),
    "aten::miopen_depthwise_convolution": Layout(9, 2, 4, 3, 5),
    "aten::miopen_convolution_transpose": Layout(10, 2, 5, 3, 6, True, 4, 7),
    "aten::miopen_convolution_relu": Layout(7, 2, 3, 4, 5),
    "aten::miopen_convolution_add_relu": Layout(9, 4, 5, 6, 7, addend=2),
    "aten::mkldnn_convolution": Layout(7, 2, 4, 3, 5),
    "aten::thnn_conv2d": _SLOW,
    "aten::_slow_conv2d_forward": _SLOW,
    "aten::slow_conv3d": _SLOW,
    "aten::slow_conv3d_forward": _SLOW,
    "aten::slow_conv_dilated2d": _SLOW,
    "aten::slow_conv_dilated3d": _SLOW,
    "aten::_conv_depthwise2d": _SLOW,
    "aten::conv_depthwise3d": _SLOW,
    "aten::slow_conv_transpose2d": Layout(8, 3, 4, 5, 7, True, 6),
    "aten::slow_conv_transpose3d": Layout(8, 3, 4, 5, 7, True, 6),
    "aten::_nnpack_spatial_convolution": Layout(5, 2, 4, 3, -1),
    "mkldnn::_convolution_pointwise": Layout(13, 2, 4, 3, 5),
    "mkldnn::_convolution_transpose_pointwise": Layout(11, 2, 5, 3, 6, True, 4, 7),
}
COMPOSITE: dict[str, Layout] = {
    "aten::conv1d": _PLAIN,
    "aten::conv2d": _PLAIN,
    "aten::conv3d": _PLAIN,
    "aten::_convolution_mode": _PLAIN,
    "aten::conv_transpose1d": _TRANSPOSED,
    "aten::conv_transpose2d": _TRANSPOSED,
    "aten::conv_transpose3d": _TRANSPOSED,
}


def by_dimension(arg: Arg, rank: int, default: int) -> tuple[int, ...]:
    """A stride, padding or dilation of each dimension; ``default`` where it was not recorded."""
    found = integers(arg)
    if not found:
        return (default,) * rank
    return found if len(found) == rank else (found[0],) * rank


def _at(call: OpCall, index: int) -> Arg:
    return call.args[index] if 0 <= index < len(call.args) else None


def output_shape(
    call: OpCall, layout: Layout, x: TensorSpec, weight: TensorSpec, transposed: bool
) -> tuple[int, ...]:
    """The result's shape from the arguments (formulas of the documentation of ``Conv2d``).

    Raises:
        ValueError: strides or padding were not recorded.
    """
    rank = len(weight.shape) - 2
    stride, padding = _at(call, layout.stride), _at(call, layout.padding)
    if len(call.args) <= max(layout.stride, layout.padding) or stride is None or padding is None:
        raise ValueError(f"{call.name}: stride and padding were not recorded")
    steps = by_dimension(stride, rank, 1)
    dilation = by_dimension(_at(call, layout.dilation), rank, 1)
    kernel = weight.shape[2:]
    sizes = x.shape[-rank:]
    batch = x.shape[: -rank - 1]
    if padding == "same":
        return (*batch, weight.shape[0], *sizes)
    pads = by_dimension(None if isinstance(padding, str) else padding, rank, 0)
    if transposed:
        extra = by_dimension(_at(call, layout.output_padding), rank, 0)
        groups = _at(call, layout.groups)
        channels = weight.shape[1] * (groups if isinstance(groups, int) else 1)
        spatial = [
            (n - 1) * s - 2 * p + d * (k - 1) + e + 1
            for n, s, p, d, k, e in zip(sizes, steps, pads, dilation, kernel, extra)
        ]
        return (*batch, channels, *spatial)
    spatial = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, s, p, d, k in zip(sizes, steps, pads, dilation, kernel)
    ]
    return (*batch, weight.shape[0], *spatial)


def _images(x: TensorSpec, rank: int) -> int:
    return x.shape[0] if len(x.shape) == rank + 2 else 1


def convolution(call: OpCall) -> Work:
    """Any forward operator of the tables."""
    layout = _ALL[call.name]
    if call.name == "mkldnn::_convolution_pointwise" and call.overload == "binary":
        # ``(X, other, W, B, ...)``: the second argument is added to the result.
        layout = Layout(13, 3, 5, 4, 6, addend=1)
        x, weight = need(call, 0), need(call, 2)
    else:
        x, weight = need(call, 0), need(call, 1)
    transposed = layout.transposed
    if not isinstance(transposed, bool):
        transposed = _at(call, transposed) is True
    rank = len(weight.shape) - 2
    out = destinations(call, layout.arity) or list(call.outputs or ())
    fresh = not destinations(call, layout.arity)
    if not out:
        out = [TensorSpec(output_shape(call, layout, x, weight, transposed), x.dtype)]
    pixels = product((x if transposed else out[0]).shape[-rank:])
    reads = [x, weight]
    for index in (layout.bias, layout.addend):
        spec = tensor_at(call, index) if index >= 0 else None
        if spec is not None:
            reads.append(spec)
    return account(
        reads, out, matrix=2.0 * _images(x, rank) * pixels * weight.numel, dtype=x.dtype,
        op_class="contraction", fresh=fresh,
    )  # fmt: skip


_ALL = {**LAYOUTS, **COMPOSITE}
add_formula(tuple(LAYOUTS), convolution)
add_formula(tuple(COMPOSITE), convolution, composite=True)
for _name in _ALL:
    state_traits(_name, Traits(Role.CONTRACTION))


@formula("aten::convolution_backward", fusion=Role.CONTRACTION)
def convolution_backward(call: OpCall) -> Work:
    """``(grad, x, weight, bias_sizes, stride, padding, dilation, transposed, .., mask at 10)``."""
    return _backward(call, output_mask(call, 10), call.args[7] is True)


@formula("aten::convolution_backward_overrideable", fusion=Role.CONTRACTION)
def convolution_backward_overrideable(call: OpCall) -> Work:
    """As above, without ``bias_sizes``."""
    return _backward(call, output_mask(call, 9), call.args[6] is True)


@formula("aten::_slow_conv2d_backward", "aten::slow_conv_dilated2d_backward")
def slow_backward(call: OpCall) -> Work:
    """``(grad, x, weight, kernel_size, ..., output_mask)``."""
    mask = next(i for i, arg in enumerate(call.args) if isinstance(arg, tuple) and True in arg
                and all(isinstance(item, bool) for item in arg))  # fmt: skip
    return _backward(call, output_mask(call, mask), False)


def _backward(call: OpCall, mask: tuple[bool, bool, bool], transposed: bool) -> Work:
    grad, x, weight = need(call, 0), need(call, 1), need(call, 2)
    rank = len(weight.shape) - 2
    pixels = product((x if transposed else grad).shape[-rank:])
    one = 2.0 * _images(x, rank) * pixels * weight.numel
    reads = [grad, *((weight,) if mask[0] else ()), *((x,) if mask[1] else ())]
    # Gradients come in their inputs' memory format: channels-last stays channels-last.
    candidates = (
        TensorSpec(x.shape, x.dtype),
        TensorSpec(weight.shape, weight.dtype),
        TensorSpec((grad.shape[-rank - 1],), grad.dtype),
    )
    return account(
        reads,
        [spec for spec, wanted in zip(candidates, mask) if wanted],
        matrix=one * (mask[0] + mask[1]),
        vector=float(grad.numel) if mask[2] else 0.0,
        dtype=x.dtype,
        op_class="contraction",
    )


@formula("aten::conv_tbc")
def conv_tbc(call: OpCall) -> Work:
    """``(t, b, c_in)`` by ``(k, c_in, c_out)`` and a bias, padded by ``pad``."""
    x, weight, bias = need(call, 0), need(call, 1), need(call, 2)
    pad = call.args[3] if len(call.args) > 3 else 0
    steps = x.shape[0] + 2 * (pad if isinstance(pad, int) else 0) - weight.shape[0] + 1
    out = list(call.outputs or [TensorSpec((steps, x.shape[1], weight.shape[2]), x.dtype)])
    return account(
        [x, weight, bias], out, matrix=2.0 * steps * x.shape[1] * weight.numel, dtype=x.dtype,
        op_class="contraction",
    )  # fmt: skip
