"""What a fusing compiler sees in an operator: what it iterates over, and what it cannot look into.

The roles follow Inductor's lowerings (``torch/_inductor/lowering.py``): an operator that becomes
one expression per element is ``POINTWISE``, however it is called; what Inductor hands to a library
is ``CONTRACTION``, ``ATTENTION`` or ``EXTERN``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.pointwise_table import POINTWISE
from gobrrr.work.reductions import REDUCTIONS, SCANS
from gobrrr.work.traffic import broadcast, integers, is_inplace
from gobrrr.work.views import NO_WORK


class Role(IntEnum):
    """How an operator takes part in fusion."""

    NOTHING = 0  # a view, a query, an allocation
    POINTWISE = 1  # one expression per element of its result
    REDUCTION = 2  # rows of its input become one value each
    NORMALISATION = 3  # reduces rows, then writes every element
    CONTRACTION = 4  # a matrix product or a convolution, by a library
    ATTENTION = 5  # a fused attention kernel
    EXTERN = 6  # anything else that is a kernel of its own


@dataclass(frozen=True, slots=True)
class Space:
    """What an operator iterates over.

    Attributes:
        role: how it takes part in fusion.
        elements: points of the iteration: of the input for a reduction, else of the result.
        row: points that one reduction takes; 1 where nothing is reduced.
        inner: whether a row lies contiguous in memory.
    """

    role: Role
    elements: int
    row: int = 1
    inner: bool = True


def _aten(names: str) -> frozenset[str]:
    return frozenset(f"aten::{name}" for name in names.split())


# Copies, fills, gathers and random numbers become expressions with computed indices.
_AS_POINTWISE = _aten("""
clone _clone flip roll rot90 tril triu tril_ triu_ copy_ copy _to_copy to contiguous reshape cat
stack repeat tile constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d
replication_pad1d replication_pad2d replication_pad3d slice_scatter select_scatter diagonal_scatter
slice_backward select_backward fill_ zero_ fill zero zeros_like ones_like full_like new_zeros
new_ones new_full zeros ones full eye arange linspace scalar_tensor embedding index_select gather
index take _unsafe_index native_dropout dropout bernoulli bernoulli_ rand rand_like randn randn_like
uniform_ normal_ upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
_upsample_nearest_exact2d upsample_bilinear2d upsample_linear1d upsample_bicubic2d glu glu_backward
log_sigmoid_forward pixel_shuffle pixel_unshuffle channel_shuffle mse_loss_backward
im2col _prelu_kernel_backward batch_norm_elemt polar complex lift_fresh_copy
one_hot
""")
_LOSSES = _aten("""
mse_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits
nll_loss_forward nll_loss2d_forward kl_div soft_margin_loss
""")
_LOSS_GRADIENTS = _aten("""
mse_loss_backward smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward
nll_loss_backward nll_loss2d_backward
""")
# Rows: the trailing dimensions, or the one that an argument names.
_BY_DIM = {
    "aten::_softmax": 1, "aten::_log_softmax": 1, "aten::_safe_softmax": 1, "aten::softmax": 1,
    "aten::log_softmax": 1, "aten::_softmax_backward_data": 2,
    "aten::_log_softmax_backward_data": 2,
}  # fmt: skip
_TRAILING = {
    "aten::native_layer_norm": 1, "aten::layer_norm": 1, "aten::native_layer_norm_backward": 2,
    "aten::_fused_rms_norm": 1, "aten::rms_norm": 1, "aten::_fused_rms_norm_backward": 2,
}  # fmt: skip
_BATCH_NORMS = _aten("""
native_batch_norm cudnn_batch_norm miopen_batch_norm _native_batch_norm_legit
_native_batch_norm_legit_no_training _native_batch_norm_legit_functional batch_norm
_batch_norm_no_update _batch_norm_with_update
""")
_BATCH_NORM_GRADIENTS = _aten("""
native_batch_norm_backward cudnn_batch_norm_backward miopen_batch_norm_backward batch_norm_backward
""")
_CONTRACTIONS = _aten("""
mm addmm bmm baddbmm addbmm mv addmv dot vdot linear matmul convolution _convolution
cudnn_convolution miopen_convolution mkldnn_convolution convolution_overrideable
conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution_backward
_scaled_mm _int_mm _grouped_mm _addmm_activation mkldnn_linear cudnn_convolution_transpose
cudnn_convolution_relu cudnn_convolution_add_relu slow_conv3d_forward _slow_conv2d_forward
thnn_conv2d conv_depthwise3d _conv_depthwise2d
""")
# Windows of at most 25 elements become an expression that reads each of them (``lowering.py``:
# ``avg_pool2d`` and ``max_pool2d`` fall back to a kernel of their own beyond that).
_LARGEST_WINDOW = 25
_MOST_JOINED = 8
_POOLS = {
    "aten::max_pool2d_with_indices": 1, "aten::max_pool3d_with_indices": 1,
    "aten::max_pool2d": 1, "aten::avg_pool2d": 1, "aten::avg_pool3d": 1,
}  # fmt: skip


def space_of(call: OpCall) -> Space | None:
    """What the operator iterates over; ``None`` where its arguments do not tell."""
    try:
        return _space(call)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None


def _space(call: OpCall) -> Space:
    name = call.name
    if name in NO_WORK:
        return Space(Role.NOTHING, 0)
    base = name.removeprefix("aten::")
    plain = base.removesuffix("_") if is_inplace(call) else base
    if base.startswith("_foreach_"):
        return _foreach(call)
    if name in _CONTRACTIONS:
        return Space(Role.CONTRACTION, _result_elements(call))
    if "attention" in base:
        return Space(Role.ATTENTION, _result_elements(call))
    if name in _BATCH_NORMS:
        return _batch_norm(call)
    if name in _BATCH_NORM_GRADIENTS:
        x = _tensor(call, 0)
        return Space(Role.NORMALISATION, x.numel, x.numel // max(1, x.shape[1]), False)
    if name in ("aten::native_group_norm", "aten::group_norm"):
        return _group_norm(call)
    if name in _BY_DIM:
        return _softmax(call, _BY_DIM[name])
    if name in _TRAILING:
        x = _tensor(call, 0)
        return Space(Role.NORMALISATION, x.numel, _trailing(call, x, _TRAILING[name]))
    if name == "aten::_adaptive_avg_pool2d":
        return _adaptive_pool(call)
    if name in ("aten::cat", "aten::stack"):
        # Many inputs are copied into place instead (``config.max_pointwise_cat_inputs``).
        small = len(call.tensors) <= _MOST_JOINED
        return Space(Role.POINTWISE if small else Role.EXTERN, _result_elements(call))
    if name in _POOLS:
        window = integers(call.args[_POOLS[name]])
        count = 1
        for n in window or ():
            count *= n
        if len(window or ()) == 1:
            count **= 2
        small = window is not None and count <= _LARGEST_WINDOW
        return Space(Role.POINTWISE if small else Role.EXTERN, _result_elements(call))
    if plain in REDUCTIONS and not (plain in ("max", "min") and len(call.tensors) > 1):
        return _reduction(call)
    if plain in SCANS:
        return Space(Role.EXTERN, _tensor(call, 0).numel)
    if name in _LOSSES:
        x = _tensor(call, 0)
        elements = x.numel if "nll" not in name else max(1, x.numel // max(1, x.shape[1]))
        return Space(Role.REDUCTION, elements, elements)
    if plain in POINTWISE or name in _AS_POINTWISE or name in _LOSS_GRADIENTS:
        return Space(Role.POINTWISE, _result_elements(call))
    if plain in ("maximum", "minimum", "max", "min"):
        return Space(Role.POINTWISE, _result_elements(call))
    return Space(Role.EXTERN, _result_elements(call))


def _tensor(call: OpCall, index: int) -> TensorSpec:
    arg = call.args[index]
    if not isinstance(arg, TensorSpec):
        raise TypeError("no tensor")
    return arg


def _result_elements(call: OpCall) -> int:
    if call.outputs:
        return max(spec.numel for spec in call.outputs)
    if is_inplace(call):
        return _tensor(call, 0).numel
    tensors = call.tensors
    if not tensors:
        raise ValueError("no tensors")
    try:
        shape = broadcast([spec.shape for spec in tensors])
    except ValueError:
        return max(spec.numel for spec in tensors)
    elements = 1
    for n in shape:
        elements *= n
    return elements


def _foreach(call: OpCall) -> Space:
    first = call.args[0]
    if not isinstance(first, tuple):
        raise TypeError("no list")
    elements = sum(spec.numel for spec in first if isinstance(spec, TensorSpec))
    reduces = any(word in call.name for word in ("norm", "max", "powsum")) and (
        "maximum" not in call.name
    )
    return Space(Role.EXTERN if reduces else Role.POINTWISE, elements)


def _batch_norm(call: OpCall) -> Space:
    x = _tensor(call, 0)
    if "no_training" in call.name:
        return Space(Role.POINTWISE, x.numel)
    # ``(input, weight, bias, running_mean, running_var, training, ...)``
    training = next((a for a in call.args if isinstance(a, bool)), None)
    if training is None:
        raise ValueError("not recorded whether it trains")
    if not training:
        return Space(Role.POINTWISE, x.numel)
    channels = x.shape[1] if len(x.shape) > 1 else 1
    return Space(Role.NORMALISATION, x.numel, x.numel // max(1, channels), False)


def _group_norm(call: OpCall) -> Space:
    x = _tensor(call, 0)
    groups = call.args[6] if call.name.endswith("native_group_norm") else call.args[1]
    if not isinstance(groups, int):
        raise TypeError("number of groups not recorded")
    return Space(Role.NORMALISATION, x.numel, x.numel // max(1, x.shape[0] * groups))


def _softmax(call: OpCall, dim_at: int) -> Space:
    x = _tensor(call, 0)
    dim = call.args[dim_at]
    if not isinstance(dim, int):
        raise TypeError("dimension not recorded")
    row = x.shape[dim] if x.shape else 1
    return Space(Role.NORMALISATION, x.numel, row, dim in (-1, len(x.shape) - 1))


def _trailing(call: OpCall, x: TensorSpec, shape_at: int) -> int:
    shape = integers(call.args[shape_at])
    if not shape:
        return x.shape[-1]
    row = 1
    for n in shape:
        row *= n
    return row


def _adaptive_pool(call: OpCall) -> Space:
    x = _tensor(call, 0)
    out = integers(call.args[1])
    if out and all(n == 1 for n in out):
        return Space(Role.REDUCTION, x.numel, x.shape[-1] * x.shape[-2])
    return Space(Role.EXTERN, x.numel)


def _reduction(call: OpCall) -> Space:
    x = _tensor(call, 0)
    if call.outputs:
        results = max(1, call.outputs[0].numel)
        listed = integers(call.args[1]) if len(call.args) > 1 else None
        inner = not listed or (len(x.shape) - 1) in {d % max(1, len(x.shape)) for d in listed}
        return Space(Role.REDUCTION, x.numel, max(1, x.numel // results), inner)
    entry = REDUCTIONS[call.name.removeprefix("aten::").removesuffix("_")]
    listed = integers(call.args[entry.dims_at]) if len(call.args) > entry.dims_at else None
    if not listed:
        # Without the dimensions (a trace that left them out) all are reduced, or nobody knows.
        if len(call.args) > entry.dims_at and call.args[entry.dims_at] is not None:
            raise ValueError("dimensions not recorded")
        return Space(Role.REDUCTION, x.numel, x.numel)
    row = 1
    for d in listed:
        row *= x.shape[d]
    inner = (len(x.shape) - 1) in {d % len(x.shape) for d in listed}
    return Space(Role.REDUCTION, x.numel, row, inner)
