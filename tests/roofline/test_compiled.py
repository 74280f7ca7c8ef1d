"""The kernels that Inductor's rules leave of small graphs, and what runs beside a convolution."""

from __future__ import annotations

import pytest

from gobrrr.prediction.kernels.efficiency import passes_beside, shape_of_convolution
from gobrrr.prediction.kernels.kernel_model import estimate_op
from gobrrr.prediction.kernels.target import target_device
from gobrrr.roofline.compiled import (
    channels_last_strides,
    compiled_kernels,
    kernel_count,
    wants_channels_last,
)
from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work import work_of


def tensor(storage: int, *shape: int, dtype: str = "float16", last: bool = False) -> TensorSpec:
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    laid = channels_last_strides(shape) if last else tuple(strides)
    return TensorSpec(shape, dtype, laid, storage, "cuda:0", 0)


def convolution(
    x: TensorSpec,
    weight: TensorSpec,
    out: TensorSpec,
    bias: TensorSpec | None = None,
    groups: int = 1,
) -> OpCall:
    pad = weight.shape[2] // 2
    args = (x, weight, bias, (1, 1), (pad, pad), (1, 1), False, (0, 0), groups)
    return OpCall("aten::convolution", args, (out,))


def conv_norm_relu(groups: int = 1, phase: Phase = Phase.FORWARD) -> list[StepOp]:
    channels = 64
    x, y, z, r = (tensor(i, 8, channels, 32, 32) for i in (1, 3, 4, 5))
    weight = tensor(2, channels, channels // groups, 3, 3)
    scale = tensor(6, channels, dtype="float32")
    norm = OpCall(
        "aten::native_batch_norm",
        (y, scale, scale, scale, scale, False, 0.1, 1e-5),
        (z, tensor(7, 0), tensor(8, 0)),
    )
    bias = tensor(9, channels)
    return [
        StepOp(convolution(x, weight, y, bias, groups), phase=phase),
        StepOp(norm, phase=phase),
        StepOp(OpCall("aten::relu", (z,), (r,)), phase=phase),
    ]


def test_bias_norm_and_activation_become_one_kernel_in_channels_last() -> None:
    library, fused = compiled_kernels(conv_norm_relu(), {5})
    assert library.call.name == "aten::convolution"
    assert library.call.args[2] is None
    assert library.call.tensors[0].strides == channels_last_strides((8, 64, 32, 32))
    assert fused.fused == ("add_", "native_batch_norm", "relu")
    assert fused.call.name == "triton_poi_fused_add_native_batch_norm_relu"
    # The convolution's result is read and the activation's written, 2 bytes an element; beside
    # them the bias (2 bytes) and four vectors of 64 floats, which are one storage here.
    assert fused.work is not None
    assert fused.work.bytes_moved is not None
    large = 2 * 8 * 64 * 32 * 32 * 2
    assert large < fused.work.bytes_moved <= large + 64 * 2 + 4 * 64 * 4
    assert kernel_count([library, fused]) == 2


def test_grouped_convolutions_keep_their_layout() -> None:
    assert wants_channels_last(conv_norm_relu())
    # 1.358 times the time in channels-last, by Inductor's table.
    assert not wants_channels_last(conv_norm_relu(groups=4))
    # Depthwise is no such group.
    assert wants_channels_last(conv_norm_relu(groups=64))


def test_a_graph_without_convolutions_is_left_alone() -> None:
    x, y = tensor(1, 64, 64), tensor(2, 64, 64)
    assert not wants_channels_last([StepOp(OpCall("aten::relu", (x,), (y,)))])


def test_positions_of_a_maximum_that_nothing_reads_are_not_computed() -> None:
    x, y = tensor(1, 8, 16, 32, 32), tensor(2, 8, 16, 16, 16)
    where = tensor(3, 8, 16, 16, 16, dtype="int64")
    args = (x, (2, 2), (2, 2), (0, 0), (1, 1), False)
    pool = StepOp(OpCall("aten::max_pool2d_with_indices", args, (y, where)))
    (kernel,) = compiled_kernels([pool], {2})
    assert kernel.work is not None
    # 8 * 16 * 32 * 32 read, a quarter of it written, 2 bytes each; no 8-byte positions.
    assert kernel.work.bytes_moved == (8 * 16 * 32 * 32 + 8 * 16 * 16 * 16) * 2


def test_contiguous_half_precision_is_converted_around_the_convolution() -> None:
    device = target_device("RTX-4090")
    contiguous = convolution(
        tensor(1, 64, 64, 56, 56), tensor(2, 64, 64, 3, 3), tensor(3, 64, 64, 56, 56)
    )
    last = convolution(
        tensor(1, 64, 64, 56, 56, last=True),
        tensor(2, 64, 64, 3, 3, last=True),
        tensor(3, 64, 64, 56, 56, last=True),
    )
    work = work_of(contiguous)
    assert work is not None
    # Input, weight and result.
    assert len(passes_beside(contiguous, work, device)) == 3
    assert passes_beside(last, work, device) == ()
    slow, fast = estimate_op(contiguous, work, device), estimate_op(last, work, device)
    assert slow is not None and fast is not None
    assert slow.time_s > fast.time_s
    assert slow.kernels == fast.kernels + 3


def test_a_window_of_one_position_and_float32_are_not_converted() -> None:
    device = target_device("RTX-4090")
    one = convolution(tensor(1, 64, 64, 56, 56), tensor(2, 64, 64, 1, 1), tensor(3, 64, 64, 56, 56))
    single = convolution(
        tensor(1, 64, 64, 56, 56, dtype="float32"),
        tensor(2, 64, 64, 3, 3, dtype="float32"),
        tensor(3, 64, 64, 56, 56, dtype="float32"),
    )
    for call in (one, single):
        work = work_of(call)
        assert work is not None
        assert passes_beside(call, work, device) == ()


def test_a_bias_is_a_pass_over_the_result() -> None:
    device = target_device("RTX-4090")
    call = convolution(
        tensor(1, 64, 64, 112, 112),
        tensor(2, 64, 64, 1, 1),
        tensor(3, 64, 64, 112, 112),
        tensor(4, 64),
    )
    work = work_of(call)
    assert work is not None
    (bias,) = passes_beside(call, work, device)
    # Read and written: 2 * 64 * 64 * 112 * 112 elements of 2 bytes.
    assert bias.bytes_moved == 2 * 64 * 64 * 112 * 112 * 2
    assert shape_of_convolution(OpCall("aten::mm", ())) is None


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 4, 5, 6)])
def test_channels_last_strides(shape: tuple[int, ...]) -> None:
    strides = channels_last_strides(shape)
    assert strides[1] == 1
    assert strides[-1] == shape[1]
    # A dense tensor: the widest stride times its size is the number of elements.
    total = 1
    for n in shape:
        total *= n
    assert strides[0] * shape[0] == total


def test_one_hot_vectors_are_an_expression_of_what_reads_them() -> None:
    index, column = tensor(1, 4096, dtype="int64"), tensor(1, 4096, 1, dtype="int64")
    vectors, wide = tensor(2, 4096, 1000, dtype="int64"), tensor(3, 4096, 1000, dtype="float32")
    ops = [
        StepOp(OpCall("aten::zeros", ((4096, 1000), "int64"), (vectors,))),
        StepOp(OpCall("aten::unsqueeze", (index, -1), (column,))),
        StepOp(OpCall("aten::scatter_", (vectors, -1, column, 1), (vectors,), "value")),
        StepOp(OpCall("aten::_to_copy", (vectors, "float32"), (wide,))),
    ]
    (kernel,) = compiled_kernels(ops, kept={3})
    # 8 bytes of each index are read, 4 of each element of the result written.
    assert kernel.work is not None
    assert kernel.work.bytes_moved == 4096 * 8 + 4096 * 1000 * 4
    # Other places, or another value, are written as the program says.
    ops[2] = StepOp(OpCall("aten::scatter_", (vectors, 0, column, 1), (vectors,), "value"))
    assert len(compiled_kernels(ops, kept={3})) > 1
