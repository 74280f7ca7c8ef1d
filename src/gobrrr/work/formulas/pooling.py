"""Pooling, resampling and grid sampling, forward and backward."""

from __future__ import annotations

from math import ceil, prod

from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
from gobrrr.work.estimate import OpClass, Work
from gobrrr.work.registry import add_formula, formula, qualified
from gobrrr.work.traffic import (
    account,
    arithmetic_dtype,
    destinations,
    integers,
    is_float,
    need,
    product,
)
from gobrrr.work.traits import Role, Space, describe, result_elements, tensor_of


def _work(
    reads: list[TensorSpec], writes: list[TensorSpec], flops: float, *, fresh: bool = True,
    op_class: OpClass = "other",
) -> Work:  # fmt: skip
    dtype = reads[0].dtype
    return account(
        reads, writes, vector=flops if is_float(dtype) or not dtype else 0.0,
        dtype=arithmetic_dtype(dtype), op_class=op_class, fresh=fresh,
    )  # fmt: skip


def _sizes(arg: Arg, rank: int, default: tuple[int, ...]) -> tuple[int, ...]:
    found = integers(arg)
    if not found:
        return default
    return found if len(found) == rank else (found[0],) * rank


def _rank(name: str) -> int:
    return int(name[name.index("pool") + 4])


def pooled_shape(call: OpCall, rank: int, *, dilated: bool, ceil_at: int) -> tuple[int, ...]:
    """``(self, kernel, stride, padding, [dilation,] ceil_mode)`` -> the result's shape."""
    x = need(call, 0)
    args = (*call.args, None, None, None, None, None)
    kernel = _sizes(args[1], rank, ())
    if not kernel:
        raise ValueError("the kernel size was not recorded")
    stride = _sizes(args[2], rank, kernel)
    padding = _sizes(args[3], rank, (0,) * rank)
    dilation = _sizes(args[4], rank, (1,) * rank) if dilated else (1,) * rank
    rounding_up = len(call.args) > ceil_at and call.args[ceil_at] is True
    spatial = []
    for n, k, s, p, d in zip(x.shape[-rank:], kernel, stride, padding, dilation):
        span = n + 2 * p - d * (k - 1) - 1
        count = (ceil(span / s) if rounding_up else span // s) + 1
        # A window that starts in the right padding is dropped.
        if rounding_up and (count - 1) * s >= n + p:
            count -= 1
        spatial.append(count)
    return (*x.shape[:-rank], *spatial)


def _window(kernel: Arg, sizes: tuple[int, ...]) -> int:
    """Elements of a window that lie inside the input (one may be larger than it)."""
    rank = len(sizes)
    return product([min(k, n) for k, n in zip(_sizes(kernel, rank, (1,) * rank), sizes)])


def max_pool(call: OpCall) -> Work:
    """One comparison per element of each window; indices int64 where the operator has them."""
    name = call.name
    rank = _rank(name)
    x = need(call, 0)
    given = destinations(call, 6)
    if given:
        out = given
    elif call.outputs:
        out = list(call.outputs)
    else:
        shape = pooled_shape(call, rank, dilated=True, ceil_at=5)
        out = [TensorSpec(shape, x.dtype)]
        if name.endswith("with_indices"):
            out.append(TensorSpec(shape, "int64"))
    window = _window(call.args[1], x.shape[-rank:])
    return _work([x], out, float(out[0].numel * window), fresh=not given)


def avg_pool(call: OpCall) -> Work:
    """One addition per element of each window, and one multiplication."""
    rank = _rank(call.name)
    x = need(call, 0)
    given = destinations(call, 7)
    out = given or list(call.outputs or ())
    if not out:
        out = [TensorSpec(pooled_shape(call, rank, dilated=False, ceil_at=4), x.dtype)]
    window = _window(call.args[1], x.shape[-rank:])
    return _work([x], out, float(out[0].numel * (window + 1)), fresh=not given)


def adaptive_pool(call: OpCall) -> Work:
    """``(self, output_size)``: each input element met at least once, one scaling per result."""
    rank = _rank(call.name)
    x = need(call, 0)
    maximum = "max" in call.name
    out = destinations(call, 2) or list(call.outputs or ())
    if not out:
        sizes = _sizes(call.args[1], rank, ())
        if not sizes:
            raise ValueError("the output size was not recorded")
        shape = (*x.shape[:-rank], *sizes)
        out = [TensorSpec(shape, x.dtype), *([TensorSpec(shape, "int64")] if maximum else [])]
    return _work([x], out, float(x.numel + (0 if maximum else out[0].numel)))


add_formula(
    qualified(
        "max_pool2d_with_indices max_pool3d_with_indices mkldnn_max_pool2d mkldnn_max_pool3d"
    ),
    max_pool,
)
add_formula(
    qualified("max_pool1d max_pool2d max_pool3d max_pool1d_with_indices"), max_pool, composite=True
)
add_formula(qualified("avg_pool2d avg_pool3d"), avg_pool)
add_formula(qualified("avg_pool1d"), avg_pool, composite=True)
add_formula(
    qualified("_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d "
              "mkldnn_adaptive_avg_pool2d"),
    adaptive_pool,
)  # fmt: skip
add_formula(
    qualified("adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d"),
    adaptive_pool,
    composite=True,
)


@formula(
    *qualified(
        "max_pool2d_with_indices_backward max_pool3d_with_indices_backward "
        "adaptive_max_pool2d_backward adaptive_max_pool3d_backward "
        "fractional_max_pool2d_backward fractional_max_pool3d_backward"
    )
)
def max_pool_backward(call: OpCall) -> Work:
    """``(grad, self, ..., indices)``: each gradient is added where its index says.

    The values of ``self`` are not needed, only its shape.
    """
    grad, x = need(call, 0), need(call, 1)
    indices = call.tensors[2:3]
    out = list(call.outputs or [TensorSpec(x.shape, grad.dtype)])
    return _work([grad, *indices], out, float(grad.numel))


@formula(
    *qualified(
        "avg_pool2d_backward avg_pool3d_backward _adaptive_avg_pool2d_backward "
        "_adaptive_avg_pool3d_backward adaptive_avg_pool3d_backward"
    )
)
def avg_pool_backward(call: OpCall) -> Work:
    """``(grad, self, [kernel, ...])``: a scaling per gradient, an addition per window element."""
    grad, x = need(call, 0), need(call, 1)
    kernel = integers(call.args[2]) if len(call.args) > 2 and "adaptive" not in call.name else None
    rank = _rank(call.name)
    spread = grad.numel * _window(call.args[2], x.shape[-rank:]) if kernel else x.numel
    out = list(call.outputs or [TensorSpec(x.shape, grad.dtype)])
    return _work([grad], out, float(grad.numel + spread))


@formula(*qualified("fractional_max_pool2d fractional_max_pool3d max_unpool2d max_unpool3d"))
def sized_pool(call: OpCall) -> Work:
    """``(self, kernel, output_size, samples)``, ``max_unpool2d(self, indices, output_size)``."""
    x = need(call, 0)
    others = list(call.tensors[1:])
    if not call.outputs:
        raise ValueError("the output was not recorded")
    return _work([x, *others], list(call.outputs), float(x.numel))


# Resampling: taps per result element and FLOPs (a multiplication and an addition each).
_TAPS = {"nearest": 0, "linear1d": 2, "bilinear2d": 4, "trilinear3d": 8, "bicubic2d": 16,
         "lanczos2d": 36}  # fmt: skip


def _taps(name: str) -> int:
    return next(taps for kind, taps in _TAPS.items() if kind in name)


def adds_of_resampling(call: OpCall) -> float:
    """Additions into the result of ``upsample_*_backward``: each gradient's, one for each tap.

    With antialiasing the taps of a shrunk dimension spread over as many elements as it shrank by
    (``upsample_gen2d_aa_backward_out_frame``, UpSampleBilinear2d.cu).
    """
    grad, sizes = need(call, 0), integers(call.args[2])
    taps = float(_taps(call.name))
    if "_aa" in call.name and sizes:
        for before, after in zip(sizes[2:], grad.shape[2:]):
            taps *= max(1.0, before / max(after, 1))
    return taps * grad.numel


def upsample(call: OpCall) -> Work:
    """``(self, output_size, ...)``; the ``vec`` variants have scale factors instead."""
    x = need(call, 0)
    out = list(call.outputs or ())
    if not out:
        sizes = integers(call.args[1])
        if not sizes or len(sizes) != len(x.shape) - 2:
            raise ValueError("the output size was not recorded")
        out = [TensorSpec((*x.shape[:2], *sizes), x.dtype)]
    # Shrinking leaves input elements unread: at most one per tap is.
    taps = _taps(call.name)
    read = TensorSpec((min(x.unique_elements, out[0].numel * max(taps, 1)),), x.dtype)
    return _work([read], out, float(2 * taps * out[0].numel), op_class=_class(taps))


def _class(taps: int) -> OpClass:
    return "other" if taps else "movement"


def upsample_backward(call: OpCall) -> Work:
    """``(grad, output_size, input_size, ...)``: each gradient spread over its taps."""
    grad = need(call, 0)
    sizes = integers(call.args[2])
    out = list(call.outputs or ([TensorSpec(sizes, grad.dtype)] if sizes else []))
    if not out:
        raise ValueError("the input size was not recorded")
    taps = _taps(call.name)
    return _work([grad], out, float(max(2 * taps, 1) * grad.numel))


_UPSAMPLES = (
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
    "_upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d "
    "upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
    "_upsample_lanczos2d_aa"
)
add_formula(qualified(_UPSAMPLES), upsample)
add_formula(tuple(f"{name}_backward" for name in qualified(_UPSAMPLES)), upsample_backward)


def _sampled(call: OpCall, mode_at: int, dims: int) -> int:
    """Elements of the input that a point of a grid reads."""
    mode = call.args[mode_at] if len(call.args) > mode_at else 0
    if mode == 1:
        return 1
    return 16 if mode == 2 else 1 << dims


def adds_of_sampling(call: OpCall) -> float:
    """Additions into the gradient of the input of ``grid_sampler_*_backward``; 0 without one."""
    grad, grid = need(call, 0), need(call, 2)
    mask = call.args[6] if len(call.args) > 6 else None
    if isinstance(mask, tuple) and mask and mask[0] is False:
        return 0.0
    return float(_sampled(call, 3, grid.shape[-1]) * grad.numel)


@formula(
    *qualified("grid_sampler_2d grid_sampler_3d cudnn_grid_sampler _grid_sampler_2d_cpu_fallback")
)
def grid_sampler(call: OpCall) -> Work:
    """``(input (n, c, ...), grid (n, ..., d), mode, ...)``: 2**d taps, 1 if nearest, 16 bicubic."""
    x, grid = need(call, 0), need(call, 1)
    dims = grid.shape[-1]
    points = grid.numel // max(dims, 1)
    taps = _sampled(call, 2, dims)
    channels = x.shape[1]
    out = list(call.outputs or [TensorSpec((x.shape[0], channels, *grid.shape[1:-1]), x.dtype)])
    # Unnormalising takes 2 operations a coordinate, the weights of the taps one product each.
    flops = points * (2 * dims + taps * dims) + 2 * taps * points * channels
    read = TensorSpec((min(x.unique_elements, points * channels * taps),), x.dtype)
    return _work([read, grid], out, float(flops))


add_formula(qualified("grid_sampler"), grid_sampler, composite=True)


@formula(
    *qualified(
        "grid_sampler_2d_backward grid_sampler_3d_backward _grid_sampler_2d_cpu_fallback_backward"
    )
)
def grid_sampler_backward(call: OpCall) -> Work:
    """``(grad, input, grid, mode, ..., output_mask)``: both gradients weigh each tap once."""
    grad, x, grid = need(call, 0), need(call, 1), need(call, 2)
    dims = grid.shape[-1]
    points = grid.numel // max(dims, 1)
    mask = call.args[6] if len(call.args) > 6 else None
    first = not (isinstance(mask, tuple) and mask and mask[0] is False)
    taps = _sampled(call, 3, dims)
    flops = points * (2 * dims + taps * dims) + 2 * taps * points * x.shape[1] * (2 if first else 1)
    outputs = [TensorSpec(x.shape, x.dtype)] if first else []
    outputs.append(TensorSpec(grid.shape, grid.dtype))
    return _work([grad, x, grid], outputs, float(flops))


@formula("aten::affine_grid_generator")
def affine_grid(call: OpCall) -> Work:
    """``(theta (n, d, d + 1), size)`` -> a grid of ``(n, ..., d)``: d + 1 products each."""
    theta = need(call, 0)
    sizes = integers(call.args[1])
    if sizes is None:
        raise ValueError("the size was not recorded")
    dims = len(sizes) - 2
    out = list(call.outputs or [TensorSpec((sizes[0], *sizes[2:], dims), theta.dtype)])
    return _work([theta], out, float(2 * (dims + 1) * out[0].numel))


# Windows of at most 25 elements become an expression that reads each of them (Inductor's
# ``lowering.py``: ``avg_pool2d`` and ``max_pool2d`` fall back to a kernel of their own beyond it).
_LARGEST_WINDOW = 25


def _windows(call: OpCall) -> Space:
    window = integers(call.args[1])
    sizes = window or ()
    small = window is not None and prod(sizes) ** (2 if len(sizes) == 1 else 1) <= _LARGEST_WINDOW
    return Space(Role.POINTWISE if small else Role.EXTERN, result_elements(call))


def _whole_planes(call: OpCall) -> Space:
    x, out = tensor_of(call, 0), integers(call.args[1])
    if out and all(n == 1 for n in out):
        return Space(Role.REDUCTION, x.numel, x.shape[-1] * x.shape[-2])
    return Space(Role.EXTERN, x.numel)


@formula("aten::col2im")
def col2im(call: OpCall) -> Work | None:
    """``(columns (..., c k, l), output_size, kernel, dilation, padding, stride)``: added up.

    Every element of a window that lies in the image is read and added; in the padding none is.
    """
    x = need(call, 0)
    sizes, kernel, dilation, padding, stride = (integers(arg) for arg in call.args[1:6])
    if not (sizes and kernel and dilation and padding and stride):
        return None
    channels = x.shape[-2] // prod(kernel)
    n = prod(x.shape[:-2]) * channels
    for size, k, d, p, s in zip(sizes, kernel, dilation, padding, stride):
        places = (size + 2 * p - d * (k - 1) - 1) // s + 1
        n *= sum(0 <= at * s - p + tap * d < size for at in range(places) for tap in range(k))
    out = list(call.outputs or [TensorSpec((*x.shape[:-2], channels, *sizes), x.dtype)])
    return account(
        [TensorSpec((n,), x.dtype)], out, vector=float(n), dtype=arithmetic_dtype(x.dtype),
        op_class="movement",
    )  # fmt: skip


describe(
    "max_pool2d_with_indices max_pool3d_with_indices max_pool2d avg_pool2d avg_pool3d",
    fusion=_windows,
)
describe("_adaptive_avg_pool2d", fusion=_whole_planes)
describe(
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
    "_upsample_nearest_exact2d upsample_bilinear2d upsample_linear1d upsample_bicubic2d "
    "pixel_shuffle pixel_unshuffle channel_shuffle im2col",
    fusion=Role.POINTWISE,
)
describe(
    "max_pool2d_with_indices max_pool3d_with_indices avg_pool2d avg_pool3d max_pool2d avg_pool1d "
    "max_pool1d _adaptive_avg_pool2d adaptive_max_pool2d _adaptive_avg_pool3d "
    "_upsample_bilinear2d_aa im2col col2im",
    passes="window",
)
describe(
    "upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d "
    "upsample_nearest2d",
    passes="resample",
)
describe("avg_pool2d_backward max_pool2d_with_indices_backward", passes="scatter")
# The gradients of the nearest element are gathered, by a thread for each of them.
describe(
    "upsample_linear1d_backward upsample_bilinear2d_backward upsample_bicubic2d_backward "
    "upsample_trilinear3d_backward _upsample_bilinear2d_aa_backward "
    "_upsample_bicubic2d_aa_backward _upsample_lanczos2d_aa_backward",
    passes="resample_backward",
)
describe("grid_sampler_2d grid_sampler_3d", passes="sample")
describe("grid_sampler_2d_backward grid_sampler_3d_backward", passes="sample_backward")
describe("upsample_bilinear2d", rate="upsample_nearest2d")
