"""The gradients of a convolution take no less than the convolution."""

from __future__ import annotations

import pytest

from gobrrr.prediction.kernels.kernel_model import KernelEstimate, estimate_op
from gobrrr.prediction.kernels.target import target_device
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work import work_of
from prediction.kernels.toy_device import aten, spec


def _estimate(call: OpCall, key: str) -> KernelEstimate:
    work = work_of(call)
    assert work is not None
    found = estimate_op(call, work, target_device(key))
    assert found is not None
    return found


def _both(
    x: TensorSpec, weight: TensorSpec, y: TensorSpec, key: str, *, stride: int = 1, pad: int = 0,
    transposed: bool = False, groups: int = 1,
) -> tuple[KernelEstimate, KernelEstimate]:  # fmt: skip
    rank = len(weight.shape) - 2
    steps, pads, ones, zeros = ((n,) * rank for n in (stride, pad, 1, 0))
    rest = (steps, pads, ones, transposed, zeros, groups)
    forward = aten("convolution", x, weight, None, *rest, outputs=(y,))
    outputs = (x, weight, spec(0))
    backward = aten(
        "convolution_backward", y, x, weight, None, *rest, (True, True, False), outputs=outputs
    )
    return _estimate(forward, key), _estimate(backward, key)


@pytest.mark.parametrize("key", ["H100-SXM", "A100-SXM-80GB", "RTX-4090", "T4", "B200"])
@pytest.mark.parametrize(
    ("x", "weight", "y", "options"),
    [
        ((8, 2048, 2048), (2048, 1, 4), (8, 2048, 2051), {"pad": 3, "groups": 2048}),
        ((64, 96, 112, 112), (96, 1, 3, 3), (64, 96, 112, 112), {"pad": 1, "groups": 96}),
        ((16, 256, 64, 64), (256, 128, 2, 2), (16, 128, 128, 128),
         {"stride": 2, "transposed": True}),
        ((2, 64, 32, 32, 32), (64, 32, 2, 2, 2), (2, 32, 64, 64, 64),
         {"stride": 2, "transposed": True}),
        ((64, 128, 56, 56), (128, 4, 3, 3), (64, 128, 56, 56), {"pad": 1, "groups": 32}),
        ((64, 64, 56, 56), (64, 64, 3, 3), (64, 64, 56, 56), {"pad": 1}),
    ],
)  # fmt: skip
def test_gradients_in_float32_take_no_less_than_the_convolution(
    x: tuple[int, ...], weight: tuple[int, ...], y: tuple[int, ...], options: dict[str, int],
    key: str,
) -> None:  # fmt: skip
    forward, backward = _both(spec(*x), spec(*weight), spec(*y), key, **options)  # type: ignore[arg-type]
    # Tiles may suit the sizes of one better than those of the other.
    assert backward.time_s > 0.95 * forward.time_s


def test_gradients_in_tf32_convert_layouts_where_the_convolution_does() -> None:
    x, weight = spec(64, 64, 56, 56), spec(64, 64, 3, 3)
    forward, backward = _both(x, weight, x, "H100-SXM", pad=1)
    assert "3 more passes" in forward.because
    assert "6 more passes" in backward.because
    _, ampere = _both(x, weight, x, "A100-SXM-80GB", pad=1)
    assert "more passes" not in ampere.because


def test_the_gradient_of_a_depthwise_weight_reads_all_again_for_each_tap() -> None:
    x = spec(64, 96, 112, 112, dtype="bfloat16")
    seconds = []
    for side in (3, 5):
        weight = spec(96, 1, side, side, dtype="bfloat16")
        forward, backward = _both(x, weight, x, "H100-SXM", pad=side // 2, groups=96)
        # PyTorch's own kernels, in the layout that they find.
        assert backward.kernels == 2
        seconds.append(backward.time_s - forward.time_s)
    assert seconds[1] > 2 * seconds[0]
