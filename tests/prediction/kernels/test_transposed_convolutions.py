"""Transposed convolutions: gradients of plain ones, on the matrix unit where cuDNN has a kernel."""

from __future__ import annotations

import pytest

from gobrrr.prediction.kernels.coefficients import coefficients_of
from gobrrr.prediction.kernels.contraction_shapes import products_of
from gobrrr.prediction.kernels.efficiency import vector_rate
from gobrrr.prediction.kernels.kernel_model import estimate_op
from gobrrr.prediction.kernels.target import target_device
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work import work_of

H100 = target_device("H100-SXM")


def _dense(*shape: int) -> TensorSpec:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return TensorSpec(shape, "float32", tuple(reversed(strides)), None, "cuda", 0)


def _transposed(
    x: TensorSpec, weight: TensorSpec, stride: int = 1, dilation: int = 1, groups: int = 1
) -> OpCall:
    rank = len(weight.shape) - 2
    out = [(n - 1) * stride + dilation * (k - 1) + 1 for n, k in zip(x.shape[2:], weight.shape[2:])]
    args = (
        x, weight, None, (stride,) * rank, (0,) * rank, (dilation,) * rank, True, (0,) * rank,
        groups,
    )  # fmt: skip
    result = _dense(x.shape[0], weight.shape[1] * groups, *out)
    return OpCall("aten::convolution", args, (result,), "default")


def _product(call: OpCall) -> tuple[int, int, int]:
    work = work_of(call)
    assert work is not None
    (found,) = products_of(call, work, coefficients_of(H100.sheet), 0.0)
    return found.m, found.n, found.k


def test_it_is_the_product_of_a_gradient_of_the_input() -> None:
    # Each of 4 x 18 x 18 results sums over 32 channels and the window; those beyond the edge meet
    # fewer inputs: 32 * 9 * 256 / 324 = 227.6.
    x, weight = _dense(4, 32, 16, 16), _dense(32, 24, 3, 3)
    assert _product(_transposed(x, weight)) == (4 * 18 * 18, 24, 228)
    # With a stride of 2 a result meets a quarter of a window of 2 x 2: one position.
    x, weight = _dense(4, 32, 16, 16), _dense(32, 24, 2, 2)
    assert _product(_transposed(x, weight, stride=2)) == (4 * 32 * 32, 24, 32)


SMALL, LARGE = (2, 32, 16, 16, 16), (16, 64, 64, 64, 64)


@pytest.mark.parametrize(
    ("sizes", "weight", "stride", "dilation", "has_kernel"),
    [
        (SMALL, (32, 32, 3, 3, 3), 1, 1, True),
        (SMALL, (32, 32, 2, 2, 2), 2, 1, True),
        # Strided with another window; dilated; channels that are no multiple of 8; 1.1 GB to be
        # converted each way.
        (SMALL, (32, 32, 3, 3, 3), 2, 1, False),
        (SMALL, (32, 32, 3, 3, 3), 1, 2, False),
        (SMALL, (32, 20, 3, 3, 3), 1, 1, False),
        (LARGE, (64, 64, 3, 3, 3), 1, 1, False),
        # In 2-D there is one for any of these.
        ((8, 32, 64, 64), (32, 20, 3, 3), 2, 1, True),
    ],
)
def test_three_dimensional_ones_leave_the_matrix_unit_where_cudnn_says(
    sizes: tuple[int, ...], weight: tuple[int, ...], stride: int, dilation: int, has_kernel: bool
) -> None:
    call = _transposed(_dense(*sizes), _dense(*weight), stride, dilation)
    rate = vector_rate(call, "tf32", H100)
    assert (rate is None) is has_kernel
    if rate is not None:
        peak = H100.ceilings.vector_flops_per_s("float32")
        assert peak is not None
        assert 0.2 * peak < rate < peak
        work = work_of(call)
        assert work is not None and work.matrix_flops is not None
        found = estimate_op(call, work, H100)
        assert found is not None
        assert found.time_s >= work.matrix_flops / rate


@pytest.mark.parametrize(
    ("rank", "groups", "transposed"), [(2, 1, True), (3, 1, True), (2, 4, True), (2, 1, False)]
)
def test_gradients_multiply_as_often_as_the_convolution(
    rank: int, groups: int, transposed: bool
) -> None:
    """Twice its work, at a stride of 2, whichever side is the larger."""
    x, weight = _dense(2, 64, *(16,) * rank), _dense(64, 32 // groups, *(2,) * rank)
    result = _dense(2, 32, *(32,) * rank)
    if not transposed:
        x, result = result, x
    twos, zeros, ones = (2,) * rank, (0,) * rank, (1,) * rank
    args = (
        result, x, weight, None, twos, zeros, ones, transposed, zeros, groups, (True, True, False),
    )  # fmt: skip
    call = OpCall("aten::convolution_backward", args, (x, weight), "default")
    work = work_of(call)
    assert work is not None and work.matrix_flops is not None
    found = products_of(call, work, coefficients_of(H100.sheet), 0.0)
    flops = [2 * p.m * p.n * p.k * p.batch for p in found]
    # 2 x images x 16^rank positions x elements of the weight for each of the two.
    assert flops == [work.matrix_flops / 2] * 2
    assert flops[0] == 2 * 2 * 16**rank * weight.numel


def test_gradients_of_a_transposed_one_are_plain_products() -> None:
    # 32 to 24 channels, 16 x 16 to 32 x 32: the input sums over 24 channels and a window of 4, the
    # weight over the 16 x 16 positions of 4 images.
    x, weight, result = _dense(4, 32, 16, 16), _dense(32, 24, 2, 2), _dense(4, 24, 32, 32)
    args = (
        result, x, weight, None, (2, 2), (0, 0), (1, 1), True, (0, 0), 1, (True, True, False),
    )  # fmt: skip
    call = OpCall("aten::convolution_backward", args, (x, weight), "default")
    work = work_of(call)
    assert work is not None
    of_x, of_weight = products_of(call, work, coefficients_of(H100.sheet), 0.0)
    assert (of_x.m, of_x.n, of_x.k) == (4 * 256, 32, 96)
    assert (of_weight.m, of_weight.n, of_weight.k) == (32, 96, 4 * 256)
