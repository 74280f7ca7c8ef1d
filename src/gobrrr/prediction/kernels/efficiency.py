"""How well convolutions run, by layout and kind, and what cuDNN does around them.

cuDNN's tensor-core kernels for 16-bit types take channels-last tensors. A contiguous (NCHW) tensor
is converted before and its result after, by kernels of their own (``nchwToNhwcKernel`` in a
profile): NVIDIA, "Deep Learning Performance: Convolutional Layers User's Guide", section "Tensor
Layouts in Memory". In float32 with TF32 there are kernels for both layouts. PyTorch adds a
convolution's bias in a kernel of its own (aten/src/ATen/native/cudnn/ConvShared.cpp,
``cudnn_convolution``; ``output.add_(reshape_bias(...))`` in Convolution.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from gobrrr.prediction.kernels.coefficients import Coefficients, coefficients_of
from gobrrr.prediction.kernels.contraction_shapes import (
    ConvolutionShape,
    convolution_of,
    gradients_of,
)
from gobrrr.prediction.kernels.passes import Pass
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.prediction.kernels.walks.walk import integers_of
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.formulas.contractions import output_mask
from gobrrr.work.formulas.convolution import COMPOSITE, LAYOUTS

_HALF = ("float16", "bfloat16")
# Architectures whose TF32 kernels take channels-last tensors alone (convolutions of
# ``programs_fp32_h100_sxm`` take two more passes over their result than their kernel needs).
_CONVERTS_TF32 = ("Hopper", "Blackwell")
# Depthwise windows that PyTorch has no kernel of fixed size for: of both rates of those with one.
# The same programs' windows of 3 x 1 and 3 x 7. DepthwiseConv2d.cu has squares of these sides.
_GENERIC_WINDOW = 0.25
_FIXED_SIDES = (1, 3, 5)
# A transposed convolution that is strided and dilated has no kernel on the matrix unit: of the
# vector rate in float32. The same programs, in 1-D and 3-D.
_SCATTERING = 0.22
_WORKSPACE_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class ConvolutionEfficiency:
    """Achieved fractions of convolutions.

    Attributes:
        channels_last: of a plain product's rate, for channels-last 16-bit convolutions, and for
            contiguous ones once converted.
        pointwise: the same for a window of one position, which is a plain product.
        few_channels: the same for at most 4 input channels (a network's first convolution).
        grouped: the same for groups of several channels.
        depthwise: of the vector peak, for depthwise windows in a contiguous tensor.
        depthwise_last: the same in channels-last (cuDNN's kernels).
        depthwise_stream: of the bandwidth, for depthwise windows in a contiguous tensor.
        depthwise_stream_last: the same in channels-last.
        conversion: bytes of layout conversions that are paid, of those that channels-last kernels
            would need: cuDNN takes kernels for contiguous tensors where those are as fast.
        source: on what the numbers were fitted. Depthwise windows beyond 7 x 7 are slower than
            this by several times, and one network does not fit a rule.
    """

    channels_last: float = 1.0
    pointwise: float = 0.9
    few_channels: float = 1.0
    grouped: float = 1.0
    depthwise: float = 0.15
    depthwise_last: float = 0.15
    depthwise_stream: float = 1.0
    depthwise_stream_last: float = 1.0
    conversion: float = 1.0
    source: str = "timm networks on an RTX 4090, benchmarks/prediction_timm"


# Measured on Ada alone; other architectures take the same until somebody measures them.
GENERIC = ConvolutionEfficiency()


def shape_of_convolution(call: OpCall) -> ConvolutionShape | None:
    """Sizes of a forward convolution; ``None`` for other ops and where arguments are missing."""
    if call.name not in LAYOUTS and call.name not in COMPOSITE:
        return None
    try:
        return convolution_of(call)
    except (LookupError, ValueError, TypeError, AttributeError, ZeroDivisionError):
        return None


def tuned(call: OpCall, work: Work, device: TargetDevice, c: Coefficients) -> Coefficients:
    """The coefficients with those of this convolution's kind; unchanged for other ops."""
    if device.kind != "cuda":
        return c
    shape = shape_of_convolution(call)
    if shape is None:
        return c
    e = GENERIC
    if shape.depthwise:
        return replace(c, direct_fraction=depthwise_fraction(call, shape))
    if shape.groups > 1:
        return replace(c, convolution_fraction=e.grouped)
    if shape.inputs <= 4:
        return replace(c, convolution_fraction=e.few_channels)
    if shape.taps == 1:
        return replace(c, convolution_fraction=e.pointwise)
    return replace(c, convolution_fraction=e.channels_last)


def depthwise_fraction(call: OpCall, shape: ConvolutionShape) -> float:
    """Share of the vector peak that a depthwise convolution's arithmetic reaches."""
    fraction = GENERIC.depthwise_last if shape.channels_last else GENERIC.depthwise
    return fraction * _window_share(call, shape)


def depthwise_stream(call: OpCall, shape: ConvolutionShape) -> float:
    """Share of the bandwidth that a direct convolution's traffic reaches."""
    last = shape.channels_last
    stream = GENERIC.depthwise_stream_last if last else GENERIC.depthwise_stream
    return stream * _window_share(call, shape)


def own_depthwise_kernels(call: OpCall, device: TargetDevice) -> bool:
    """Whether PyTorch's own kernels compute a depthwise convolution's gradients, not cuDNN's."""
    try:
        shape, _ = gradients_of(call)
    except (LookupError, ValueError, TypeError, AttributeError, ZeroDivisionError):
        # A trace that leaves arguments out.
        return False
    return (
        device.kind == "cuda" and shape.depthwise and not shape.transposed
        and not shape.channels_last and call.tensors[1].dtype != "float16"
    )  # fmt: skip


def _window_share(call: OpCall, shape: ConvolutionShape) -> float:
    """Of the rates of a window of fixed size: 16-bit squares may be cuDNN's, which has more."""
    sides = set(shape.window)
    fixed = len(sides) == 1 and (call.tensors[0].dtype in _HALF or sides <= set(_FIXED_SIDES))
    return 1.0 if fixed or shape.channels_last else _GENERIC_WINDOW


def vector_rate(
    call: OpCall, dtype: str, device: TargetDevice, c: Coefficients | None = None
) -> float | None:
    """FLOP/s of a transposed convolution without a kernel on the matrix unit; ``None``: has one.

    ``c``: by default that of the device's architecture.
    """
    shape = shape_of_convolution(call)
    vector = device.ceilings.vector_flops_per_s("float32")
    if shape is None or not shape.transposed or dtype != "tf32" or vector is None:
        return None
    if call.name != "aten::convolution" or len(call.args) < 6:
        return None
    strides, dilation = (integers_of(call.args[at]) or (1,) for at in (3, 5))
    if max(strides) > 1 and max(dilation) > 1:
        return vector * _SCATTERING
    if len(shape.window) < 3 or _deconvolved(shape, strides, dilation):
        return None
    c = c or coefficients_of(device.sheet)
    return vector * c.float32_fraction * c.float32_convolution_fraction


def _deconvolved(
    shape: ConvolutionShape, strides: tuple[int, ...], dilation: tuple[int, ...]
) -> bool:
    """Whether cuDNN has a kernel on the matrix unit for a 3-D one in NCDHW.

    "Best Practices For Using cuDNN 3D Convolutions" (cuDNN 8.2.1): stride 1, or 2 with a window of
    2 x 2 x 2; no dilation; channels divisible by 8; and at most 256 MB of workspace, which here are
    the converted tensors.
    """
    doubled = set(strides) == {2} and set(shape.window) == {2}
    elements = shape.inputs * shape.pixels_in + shape.outputs * shape.pixels_out
    return (
        (set(strides) == {1} or doubled)
        and set(dilation) == {1}
        and shape.inputs % 8 == shape.outputs % 8 == 0
        and 4 * shape.images * shape.groups * elements <= _WORKSPACE_BYTES
    )


def passes_beside(call: OpCall, work: Work, device: TargetDevice) -> tuple[Pass, ...]:
    """Kernels that run beside a convolution: layout conversions, and the bias.

    Each conversion reads and writes its tensor once. Tensors that fit into half of the cache are
    converted there.
    """
    if device.kind not in ("cuda", "hip"):
        return ()
    if call.name == "aten::convolution_backward":
        return _beside_backward(call, work, device)
    if call.name == "aten::linalg_matrix_exp":
        return _beside_exponential(call, work, device)
    shape = shape_of_convolution(call)
    if shape is None:
        return ()
    x, weight = call.tensors[0], call.tensors[1]
    out = _result(call, x, shape)
    item = x.item_size_bytes
    if item is None or out is None:
        return ()
    found = []
    dtype = work.compute_dtype
    # A window of one position is a product of matrices in either layout.
    converted = _converts(dtype, device) and vector_rate(call, dtype, device) is None
    if converted and shape.taps > 1 and not shape.depthwise and not shape.channels_last:
        # One channel, or one position, lies the same in both layouts.
        for elements, channels in ((x.numel, x.shape[1]), (weight.numel, weight.shape[1]),
                                   (out, shape.outputs * shape.groups)):  # fmt: skip
            if channels > 1 and elements > channels * shape.images:
                found.append(_copy(elements * item, device, dtype, GENERIC.conversion))
    bias = call.args[2] if len(call.args) > 2 else None
    if isinstance(bias, TensorSpec) and not call.name.startswith("aten::cudnn"):
        found.append(_copy(out * item, device, dtype, 1.0))
    return tuple(found)


def _converts(dtype: str, device: TargetDevice) -> bool:
    """Whether the kernels on the matrix unit take channels-last tensors alone."""
    return dtype in _HALF or (dtype == "tf32" and device.architecture.startswith(_CONVERTS_TF32))


def _beside_backward(call: OpCall, work: Work, device: TargetDevice) -> tuple[Pass, ...]:
    """Conversions around the gradients: each takes two tensors and gives the third."""
    grad, x, weight = call.tensors[0], call.tensors[1], call.tensors[2]
    item = x.item_size_bytes
    last = x.strides is not None and x.strides[1] == 1 and x.shape[1] > 1
    if item is None or last or prod(weight.shape[2:]) == 1:
        return ()
    if not _converts(work.compute_dtype, device) or own_depthwise_kernels(call, device):
        return ()
    gradients = sum(output_mask(call, 10)[:2])
    share = GENERIC.conversion
    sizes = [spec.numel * item for spec in (grad, x, weight)] * gradients
    return tuple(_copy(size, device, work.compute_dtype, share) for size in sizes)


def _beside_exponential(call: OpCall, work: Work, device: TargetDevice) -> tuple[Pass, ...]:
    """The matrix scaled, five combinations of five powers, three sums of two matrices.

    ``compute_T18`` and ``compute_T18_scale_square``, aten/src/ATen/native/LinearAlgebra.cpp.
    """
    x = call.tensors[0]
    size = x.numel * (x.item_size_bytes or 4)
    return tuple(
        _copy(size * tensors / 2, device, work.compute_dtype, 1.0) for tensors in (2, 10, 3, 3, 3)
    )


def _copy(size: float, device: TargetDevice, dtype: str, share: float) -> Pass:
    moved = 2.0 * size
    cold = 0.0 if moved <= device.cache_bytes / 2 else moved
    return Pass(bytes_moved=moved * share, cold_bytes=cold * share, dtype=dtype)


def _result(call: OpCall, x: TensorSpec, shape: ConvolutionShape) -> int | None:
    if call.outputs:
        return prod(call.outputs[0].shape)
    pixels = shape.pixels_in if shape.transposed else shape.pixels_out
    return shape.images * shape.outputs * shape.groups * pixels if pixels else None
