"""Grouped and depthwise convolutions computed without tiles, on the vector path of a GPU.

Sources: PyTorch's DepthwiseConv2d.cu and DepthwiseConv3d.cu, which run where cuDNN has no kernel:
contiguous tensors, of other dtypes than float16 (``use_cudnn_depthwise``, Convolution.cpp).
"""

from __future__ import annotations

from dataclasses import replace

from gobrrr.prediction.kernels.coefficients import Coefficients
from gobrrr.prediction.kernels.contraction_shapes import gradients_of
from gobrrr.prediction.kernels.efficiency import (
    GENERIC,
    depthwise_fraction,
    depthwise_stream,
    own_depthwise_kernels,
    shape_of_convolution,
)
from gobrrr.prediction.kernels.kernels import Kernels
from gobrrr.prediction.kernels.passes import Pass, arithmetic_seconds, seconds_of, traffic_seconds
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.timeline.ops import OpCall
from gobrrr.work.estimate import Work


def direct_convolution(
    call: OpCall, work: Work, device: TargetDevice, c: Coefficients, cold: float
) -> Kernels | None:
    """A grouped or depthwise convolution, or the gradients of a depthwise one; else ``None``."""
    if call.name == "aten::convolution_backward":
        return _depthwise_gradients(call, work, device, c, cold)
    shape = shape_of_convolution(call)
    if shape is None or shape.groups == 1:
        return None
    once = Pass(
        bytes_moved=float(work.bytes_moved or 0),
        cold_bytes=cold,
        vector_flops=work.matrix_flops or 0.0,
        dtype=work.compute_dtype,
        efficiency=depthwise_stream(call, shape),
    )
    kind = "depthwise" if shape.depthwise else f"{shape.groups} groups"
    passes = ((once, c.direct_fraction),)
    return _in_turn(passes, device, c, f"{kind}, on the vector path")


def _depthwise_gradients(
    call: OpCall, work: Work, device: TargetDevice, c: Coefficients, cold: float
) -> Kernels | None:
    """The input's gradient is a depthwise convolution of the result's.

    For that of the weight a block of threads for each of its elements reads a channel of the input
    and of the result's gradient (``conv_depthwise2d_grad_weight_kernel``): every tap reads them
    again, from the cache.
    """
    if not own_depthwise_kernels(call, device):
        return None
    shape, (of_input, of_weight) = gradients_of(call)
    grad, x, weight = call.tensors[:3]
    sizes = [float(spec.numel * (spec.item_size_bytes or 4)) for spec in (grad, x, weight)]
    both = sizes[0] + sizes[1]
    share = cold / max(float(work.bytes_moved or 0), 1.0)
    flops = 2.0 * grad.numel * shape.taps
    whole = Pass(
        bytes_moved=sum(sizes), cold_bytes=share * both, vector_flops=flops,
        dtype=work.compute_dtype, efficiency=depthwise_stream(call, shape),
    )  # fmt: skip
    again = replace(whole, bytes_moved=shape.taps * both, efficiency=1.0)
    # The kernel for the weight's is the same for windows of all sizes.
    passes = []
    if of_input:
        passes.append((whole, depthwise_fraction(call, shape)))
    if of_weight:
        passes.append((again, GENERIC.depthwise))
    return _in_turn(tuple(passes), device, c, "depthwise gradients, on the vector path")


def _in_turn(
    passes: tuple[tuple[Pass, float], ...], device: TargetDevice, c: Coefficients, how: str
) -> Kernels | None:
    """Passes one after the other, each with its share of the vector peak."""
    seconds = compute_s = memory_s = 0.0
    for once, fraction in passes:
        direct = replace(c, vector_fraction=fraction)
        whole_s = seconds_of(once, device, direct)
        arithmetic_s = arithmetic_seconds(once, device, direct)
        traffic_s = traffic_seconds(once, device, direct)
        if whole_s is None or arithmetic_s is None or traffic_s is None:
            return None
        seconds += whole_s
        compute_s += arithmetic_s
        memory_s += traffic_s
    return Kernels(seconds, compute_s, memory_s, len(passes), how) if passes else None
