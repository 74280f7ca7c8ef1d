from __future__ import annotations

from .calls import moved, tensor, work

X = tensor(2, 3, 8, 8)
W = tensor(5, 3, 3, 3)
PADDED = ((1, 1), (1, 1), (1, 1))  # stride, padding, dilation


def conv(x=X, w=W, stride=(1, 1), padding=(1, 1), transposed=False, groups=1, **given):
    args = (x, w, None, stride, padding, (1, 1), transposed, (0, 0), groups)
    return work("convolution", *args, **given)


def test_every_output_pixel_meets_the_whole_weight() -> None:
    found = conv()
    assert found.matrix_flops == 2 * 2 * 64 * 135  # 2 * images * pixels * (5 * 3 * 3 * 3)
    assert moved(found) == ((384 + 135) * 4, 640 * 4, (384 + 135 + 640) * 4)


def test_stride_shrinks_the_result() -> None:
    # (8 + 2 - 3) // 2 + 1 = 4
    found = conv(stride=(2, 2))
    assert (found.matrix_flops, found.bytes_written) == (2 * 2 * 16 * 135, 2 * 5 * 16 * 4)


def test_grouped_weights_are_already_divided() -> None:
    depthwise = conv(x=tensor(2, 6, 8, 8), w=tensor(6, 1, 3, 3), groups=6)
    assert depthwise.matrix_flops == 2 * 2 * 64 * 54


def test_a_transposed_one_goes_by_input_pixels() -> None:
    # weight (in 3, out 5, 4, 4), stride 2, padding 1: (8 - 1) * 2 - 2 + 3 + 1 = 16 a side
    found = conv(w=tensor(3, 5, 4, 4), stride=(2, 2), transposed=True)
    assert found.matrix_flops == 2 * 2 * 64 * 240
    assert found.bytes_written == 2 * 5 * 16 * 16 * 4


def test_backends_order_their_arguments_differently() -> None:
    same = conv(stride=(2, 2)).matrix_flops
    stride, padding, dilation = (2, 2), (1, 1), (1, 1)
    calls = {
        "cudnn_convolution": (X, W, padding, stride, dilation, 1, False, False, True),
        "mkldnn_convolution": (X, W, None, padding, stride, dilation, 1),
        "miopen_convolution": (X, W, None, padding, stride, dilation, 1, False, False),
        "thnn_conv2d": (X, W, (3, 3), None, stride, padding),
        "_slow_conv2d_forward": (X, W, (3, 3), None, stride, padding),
        "_conv_depthwise2d": (X, W, (3, 3), None, stride, padding, dilation),
        "conv2d": (X, W, None, stride, padding, dilation, 1),
        "_convolution": (X, W, None, stride, padding, dilation, False, (0, 0), 1, False, False),
    }
    assert {name: work(name, *args).matrix_flops for name, args in calls.items()} == dict.fromkeys(
        calls, same
    )


def test_padding_by_name() -> None:
    found = work("conv2d", X, W, None, (1, 1), "same", (1, 1), 1)
    assert found.bytes_written == 640 * 4
    valid = work("conv2d", X, W, None, (1, 1), "valid", (1, 1), 1)
    assert valid.bytes_written == 2 * 5 * 36 * 4


def test_backward_by_its_mask() -> None:
    grad = tensor(2, 5, 8, 8)
    args = (grad, X, W, (5,), (1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    one = 2 * 2 * 64 * 135
    everything = work("convolution_backward", *args, (True, True, True))
    assert (everything.matrix_flops, everything.vector_flops) == (2 * one, 640)
    assert moved(everything)[:2] == ((640 + 384 + 135) * 4, (384 + 135 + 5) * 4)
    weight = work("convolution_backward", *args, (False, True, False))
    assert (weight.matrix_flops, weight.vector_flops) == (one, 0)
    # Only the gradient and the input are read, only the weight's gradient written.
    assert moved(weight)[:2] == ((640 + 384) * 4, 135 * 4)


def test_grouped_weight_gradient_is_not_counted_groups_times() -> None:
    x, w = tensor(2, 6, 8, 8), tensor(6, 1, 3, 3)
    args = (x, x, w, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 6, (False, True, False))
    assert work("convolution_backward", *args).matrix_flops == 2 * 2 * 64 * 54


def test_one_dimension_without_a_batch() -> None:
    # (3, 10) by (4, 3, 5): 6 pixels, 2 * 6 * 60
    found = work("conv1d", tensor(3, 10), tensor(4, 3, 5), None, (1,), (0,), (1,), 1)
    assert (found.matrix_flops, found.bytes_written) == (720, 4 * 6 * 4)
