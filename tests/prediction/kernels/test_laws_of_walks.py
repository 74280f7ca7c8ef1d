"""The laws of ``test_laws`` for ops that walk through memory, batches, and time steps."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gobrrr.prediction.kernels.target import target_device
from gobrrr.timeline.ops import OpCall, TensorSpec
from prediction.kernels.test_laws import _dense, _estimate, _faster

NVIDIA = ("P100-PCIe", "V100-PCIe", "T4", "A100-SXM-80GB", "L40S", "H100-SXM", "B200", "RTX-5090")
AMD = ("MI100", "MI210", "MI250X", "MI300X", "MI355X")
DEVICES = NVIDIA + AMD
F32, SCALAR = "float32", ()
Maker = Callable[[int], OpCall]


def _op(name: str, *args: object, out: tuple[TensorSpec, ...]) -> OpCall:
    return OpCall(f"aten::{name}", args, out, "default")  # type: ignore[arg-type]


def _bmm(n: int) -> OpCall:
    a, b = _dense((n, 256, 192), F32), _dense((n, 192, 128), F32)
    return _op("bmm", a, b, out=(_dense((n, 256, 128), F32),))


def _layer_norm_backward(n: int) -> OpCall:
    x, weight, stats = _dense((64 * n, 1024), F32), _dense((1024,), F32), _dense((64 * n, 1), F32)
    args = (x, x, (1024,), stats, stats, weight, weight, (True, True, True))
    return _op("native_layer_norm_backward", *args, out=(x, weight, weight))


def _group_norm(n: int) -> OpCall:
    x, weight, stats = _dense((n, 64, 56, 56), F32), _dense((64,), F32), _dense((n, 8), F32)
    return _op("native_group_norm", x, weight, weight, n, 64, 3136, 8, 1e-5, out=(x, stats, stats))


def _batch_norm(n: int) -> OpCall:
    x, channels = _dense((n, 64, 56, 56), F32), _dense((64,), F32)
    args = (x, channels, channels, channels, channels, True, 0.1, 1e-5)
    return _op("native_batch_norm", *args, out=(x, channels, channels))


def _batch_norm_backward(n: int) -> OpCall:
    x, c = _dense((n, 64, 56, 56), F32), _dense((64,), F32)
    args = (x, x, c, c, c, c, c, True, 1e-5, (True, True, True))
    return _op("native_batch_norm_backward", *args, out=(x, c, c))


def _max_pool(n: int) -> OpCall:
    x, out = _dense((n, 64, 112, 112), F32), (n, 64, 56, 56)
    args = (x, (3, 3), (2, 2), (1, 1), (1, 1), False)
    return _op("max_pool2d_with_indices", *args, out=(_dense(out, F32), _dense(out, "int64")))


def _avg_pool(n: int) -> OpCall:
    x = _dense((n, 64, 112, 112), F32)
    return _op("avg_pool2d", x, (2, 2), (2, 2), out=(_dense((n, 64, 56, 56), F32),))


def _scan(n: int) -> OpCall:
    x = _dense((64 * n, 2048), F32)
    return _op("cumsum", x, 1, out=(x,))


def _scan_of_columns(n: int) -> OpCall:
    x = _dense((n, 256, 1024), F32)
    return _op("cumsum", x, 1, out=(x,))


def _sum(n: int) -> OpCall:
    return _op("sum", _dense((64 * n, 4096), F32), (1,), False, out=(_dense((64 * n,), F32),))


def _mean_of_columns(n: int) -> OpCall:
    return _op("mean", _dense((n, 256, 1024), F32), (1,), False, out=(_dense((n, 1024), F32),))


def _largest(n: int) -> OpCall:
    return _op("amax", _dense((64 * n, 4096), F32), (1,), False, out=(_dense((64 * n,), F32),))


def _loss(n: int) -> OpCall:
    x = _dense((64 * n, 1024), F32)
    return _op("mse_loss", x, x, 1, out=(_dense(SCALAR, F32),))


def _cross_entropy(n: int) -> OpCall:
    x = _dense((64 * n, 1024), F32)
    return _op("binary_cross_entropy_with_logits", x, x, None, None, 1, out=(_dense(SCALAR, F32),))


def _lstm(n: int) -> OpCall:
    x, state = _dense((n, 64, 128), F32), _dense((2, n, 256), F32)
    weights = tuple(
        _dense(shape, F32)
        for inputs in (128, 256)
        for shape in ((1024, inputs), (1024, 256), (1024,), (1024,))
    )
    args = (x, weights, 4, None, state, state, 2, 256, 0, 2, True, 0.0, True, False, (), None)
    return _op("_cudnn_rnn", *args, out=(_dense((n, 64, 256), F32), state, state))


def _transposed_backward(n: int) -> OpCall:
    x, weight = _dense((n, 32, 16, 16), F32), _dense((32, 32, 2, 2), F32)
    grad = _dense((n, 32, 32, 32), F32)
    args = (
        grad, x, weight, None, (2, 2), (0, 0), (1, 1), True, (0, 0), 1, (True, True, False),
    )  # fmt: skip
    return _op("convolution_backward", *args, out=(x, weight))


def _log_sum_exp(n: int) -> OpCall:
    return _op("logsumexp", _dense((n, 4096), F32), (1,), out=(_dense((n,), F32),))


def _padded(n: int) -> OpCall:
    x = _dense((n, 64, 56, 56), F32)
    return _op("constant_pad_nd", x, (1, 1, 1, 1), 0.0, out=(_dense((n, 64, 58, 58), F32),))


def _softmax_of_channels(n: int) -> OpCall:
    x = _dense((n, 64, 56, 56), F32)
    return _op("_softmax", x, 1, False, out=(x,))


def _float32_attention(n: int) -> OpCall:
    q, sums = _dense((n, 8, 512, 64), F32), _dense((n, 8, 512), F32)
    name = "_scaled_dot_product_efficient_attention"
    return _op(name, q, q, q, None, False, 0.0, False, out=(q, sums))


MAKERS: tuple[Maker, ...] = (
    _bmm, _layer_norm_backward, _group_norm, _batch_norm, _batch_norm_backward, _max_pool,
    _avg_pool, _scan, _scan_of_columns, _sum, _mean_of_columns, _largest, _loss, _cross_entropy,
    _lstm, _transposed_backward, _log_sum_exp, _padded, _softmax_of_channels, _float32_attention,
)  # fmt: skip


# What twice the batch may take where 2.2 times is too little: what lies between the kernels of a
# loss, or between the reads of a channel or a column, outgrows the cache.
MOST = {"_loss": 3.0, "_cross_entropy": 3.2, "_batch_norm": 2.4, "_softmax_of_channels": 2.4}
# A batch of one is a product of another kind (a matrix with a vector; one product with tiles of
# every size), which these kernels are slower than by more than the batch.
ANOTHER_KERNEL = {"_bmm": 1, "_lstm": 1}


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("name", DEVICES)
def test_it_grows_with_the_batch_and_never_beats_its_roof(name: str, make: Maker) -> None:
    device = target_device(name)
    first = ANOTHER_KERNEL.get(make.__name__, 0)
    found = [_estimate(make(2**power), device) for power in range(first, 8)]
    for estimate in found:
        assert estimate.time_s >= estimate.roof.time_s
    for less, more in pairwise(found):
        assert 0.999 * less.time_s <= more.time_s <= MOST.get(make.__name__, 2.2) * less.time_s


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("name", DEVICES)
def test_a_device_faster_in_every_line_is_never_slower(name: str, make: Maker) -> None:
    device = target_device(name)
    faster = [_faster(device, factor) for factor in (1.0, 1.2, 2.0, 4.0)]
    for batch in (1, 16, 128):
        times = [_estimate(make(batch), each).time_s for each in faster]
        for slower, quicker in pairwise(times):
            assert quicker <= slower * (1 + 1e-9)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(MAKERS), st.sampled_from(DEVICES), st.integers(1, 300), st.integers(1, 300))
def test_more_of_it_never_takes_much_less(make: Maker, name: str, one: int, other: int) -> None:
    """Of any two batches: rounds of blocks end raggedly, so a tenth is let pass."""
    device = target_device(name)
    less, more = (_estimate(make(n), device).time_s for n in sorted((one, other)))
    assert more >= 0.9 * less


# Lesser and better parts of one generation, better or alike in every line of their sheets.
BETTER = (
    ("B200", "GB200"), ("B300", "GB300"), ("V100-PCIe", "V100-SXM2"), ("H100-SXM", "H200-SXM"),
    ("RTX-4070", "RTX-4070-Super"), ("MI308X", "MI300X"), ("MI210", "MI250X"),
)  # fmt: skip


@pytest.mark.parametrize(("lesser", "better"), BETTER)
def test_the_better_of_two_parts_is_never_slower(lesser: str, better: str) -> None:
    for make in MAKERS:
        slow, fast = (_estimate(make(128), target_device(name)) for name in (lesser, better))
        # Tiles and rounds are quantised by the number of multiprocessors.
        assert fast.time_s <= 1.05 * slow.time_s, make.__name__


def test_exponentials_are_not_for_nothing_on_any_part() -> None:
    """Of attention: the part with more special-function units is the faster one."""
    q = _dense((8, 16, 4096, 64), "bfloat16")
    out = (q, _dense((8, 16, 4096), F32))
    call = _op("_scaled_dot_product_flash_attention", q, q, q, 0.0, True, False, None, out=out)
    times = [_estimate(call, target_device(name)).time_s for name in ("B200", "B300", "GB300")]
    assert times == sorted(times, reverse=True)
