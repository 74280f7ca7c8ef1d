"""How fast PyTorch's own operators go on this CPU: what no instruction rate tells.

An operator's loop may call a library for each element (``tanh``), draw random numbers one after the
other (``bernoulli_``) or stay scalar (``where``); its time per element differs by a hundred times
between operators and is steady per machine and build. Each is timed on data that stays in the
caches; the rate counts elements of its largest tensor, except where windows, the result or the rows
fetched or added are counted (``prediction.kernels.processor`` says which).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from gobrrr.devices.ceilings import Ceiling
from gobrrr.devices.cpu.compute import float32_on_cpu
from gobrrr.measure.timing import THREADS_WAKE_S
from gobrrr.timeline.quantities import si

# Each thread gets two of PyTorch's grains (32768 elements): 256 KiB in float32.
_PER_THREAD = 65536
_COLUMNS = 256
_TRIAL_S = 0.002
_TRIALS = 4
# Sizes of a head at which attention is timed; between them the time per score is interpolated.
HEADS = (8, 16, 32, 64, 128)
_POSITIONS = 256

Call = Callable[[], object]


def operator_rates(torch: Any, threads: int) -> Iterator[Ceiling]:
    """Rows ``operator.<name>`` in elements per second (``op/s``).

    Contractions are among them where their library is not the plain product's: convolutions in
    FLOP/s, fused attention in scores per second for each of ``HEADS``.
    """
    generator = torch.Generator(device="cpu")
    generator.manual_seed(0)
    _wake_threads(torch, _PER_THREAD * threads)
    with torch.random.fork_rng(devices=[]):
        for name, call, elements in _element_wise(torch, generator, _PER_THREAD * threads):
            yield _row(name, call, elements, "op/s", f"aten::{name}, {si(elements)} elements")
        for name, call, flops in _convolutions(torch, generator, threads):
            yield _row(name, call, flops, "FLOP/s", "64 to 64 channels, 3x3, 32x32 positions")
        yield from _attention(torch, generator, threads)


def _element_wise(torch: Any, generator: Any, count: int) -> Iterator[tuple[str, Call, float]]:
    aten = torch.ops.aten
    kind = float32_on_cpu(torch)
    x = torch.randn(count, generator=generator, **kind)
    y = torch.randn(count, generator=generator, **kind)
    positive = torch.rand(count, generator=generator, **kind) + 0.1
    for name in ("sqrt", "rsqrt", "log"):
        yield name, _bind(getattr(aten, name), positive), count
    for name in ("exp", "tanh", "sigmoid", "erf", "gelu", "silu", "sin", "softplus"):
        yield name, _bind(getattr(aten, name), x), count
    yield "gelu.tanh", _bind(aten.gelu, x, approximate="tanh"), count
    yield "pow", _bind(aten.pow, positive, 1.5), count
    yield "gt", _bind(aten.gt, x, y), count
    yield "where", _bind(aten.where, x > y, x, y), count
    for name in ("gelu_backward", "silu_backward"):
        yield name, _bind(getattr(aten, name), y, x), count
    yield "gelu_backward.tanh", _bind(aten.gelu_backward, y, x, approximate="tanh"), count
    drawn = torch.empty_like(x)
    yield "bernoulli_", _bind(aten.bernoulli_, drawn, 0.1), count
    yield "uniform_", _bind(aten.uniform_, drawn), count
    yield "normal_", _bind(aten.normal_, drawn), count
    yield from _of_rows(torch, x.view(-1, _COLUMNS), y.view(-1, _COLUMNS))
    yield from _of_images(torch, x, y)


def _of_rows(torch: Any, x: Any, y: Any) -> Iterator[tuple[str, Call, float]]:
    aten = torch.ops.aten
    count = x.numel()
    for name in ("_softmax", "_log_softmax"):
        forward = getattr(aten, name)
        yield name, _bind(forward, x, -1, False), count
        backward = getattr(aten, f"{name}_backward_data")
        result = forward(x, -1, False)
        yield f"{name}_backward_data", _bind(backward, y, result, -1, torch.float32), count
    yield "cumsum", _bind(aten.cumsum, x, -1), count
    yield "transpose", lambda: x.t().contiguous(), count
    yield "sort", _bind(aten.sort, x), count
    yield "topk", _bind(aten.topk, x, 8), count
    yield "argmax", _bind(aten.argmax, x, -1), count
    _, mean, rstd = aten.native_layer_norm(x, [_COLUMNS], None, None, 1e-5)
    yield "native_layer_norm", _bind(aten.native_layer_norm, x, [_COLUMNS], None, None, 1e-5), count
    yield (
        "native_layer_norm_backward",
        _bind(aten.native_layer_norm_backward, y, x, [_COLUMNS], mean, rstd, None, None,
              [True, False, False]),
        count,
    )  # fmt: skip
    narrow = x.reshape(-1, 64)
    order = torch.arange(len(narrow), device="cpu").flip(0)
    yield "index", lambda: narrow[order], count
    yield "index_add", _bind(aten.index_add, narrow, 0, order, narrow), count
    # Single values by index: what fetching a row of any width takes at least.
    values, places = x.reshape(-1), torch.arange(count, device="cpu").flip(0)
    yield "fetch.index", lambda: values[places], count
    yield "fetch.index_select", _bind(aten.index_select, values, 0, places), count
    yield "fetch.gather", _bind(aten.gather, values, 0, places), count


def _of_images(torch: Any, x: Any, y: Any) -> Iterator[tuple[str, Call, float]]:
    aten = torch.ops.aten
    count = x.numel()
    images, channels, side = count // 65536, 64, 32
    x, y = (tensor.view(images, channels, side, side) for tensor in (x, y))
    none = (None, None, None, None)
    _, mean, rstd = aten.native_batch_norm(x, *none, True, 0.1, 1e-5)
    yield "native_batch_norm", _bind(aten.native_batch_norm, x, *none, True, 0.1, 1e-5), count
    yield (
        "native_batch_norm_backward",
        _bind(aten.native_batch_norm_backward, y, x, None, None, None, mean, rstd, True, 1e-5,
              [True, False, False]),
        count,
    )  # fmt: skip
    sizes = (images, channels, side * side, 8)
    _, mean, rstd = aten.native_group_norm(x, None, None, *sizes, 1e-5)
    yield "native_group_norm", _bind(aten.native_group_norm, x, None, None, *sizes, 1e-5), count
    yield (
        "native_group_norm_backward",
        _bind(aten.native_group_norm_backward, y, x, mean, rstd, None, *sizes,
              [True, False, False]),
        count,
    )  # fmt: skip
    pooled = aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])[0]
    yield (
        "max_pool2d_with_indices",
        _bind(aten.max_pool2d_with_indices, x, [3, 3], [2, 2], [1, 1]),
        9 * pooled.numel(),
    )
    yield "avg_pool2d", _bind(aten.avg_pool2d, x, [2, 2]), count
    small = x[:, :16]
    yield (
        "upsample_nearest2d",
        _bind(aten.upsample_nearest2d, small, [2 * side, 2 * side]),
        4 * small.numel(),
    )


def _convolutions(torch: Any, generator: Any, threads: int) -> Iterator[tuple[str, Call, float]]:
    aten = torch.ops.aten
    kind = float32_on_cpu(torch)
    x = torch.randn(2 * threads, 64, 32, 32, generator=generator, **kind)
    weight = torch.randn(64, 64, 3, 3, generator=generator, **kind)
    shape = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    flops = 2.0 * x.numel() * 64 * 9
    yield "convolution", _bind(aten.convolution, x, weight, None, *shape), flops
    yield (
        "convolution_backward",
        _bind(aten.convolution_backward, x, x, weight, None, *shape, [True, True, False]),
        2 * flops,
    )


def _attention(torch: Any, generator: Any, threads: int) -> Iterator[Ceiling]:
    """Scores per second by size of the head, and queries per second where keys are few."""
    forward = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
    backward = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None)
    if forward is None or backward is None:
        return
    kind = float32_on_cpu(torch)
    for size in HEADS:
        q = torch.randn(1, 4 * threads, _POSITIONS, size, generator=generator, **kind)
        scores = float(4 * threads * _POSITIONS**2)
        out, log_sum = forward(q, q, q)
        source = f"fused attention, heads of {size}, {_POSITIONS} positions"
        yield _row(f"attention.{size}", _bind(forward, q, q, q), scores, "op/s", source)
        call = _bind(backward, q, q, q, q, out, log_sum, 0.0, False)
        yield _row(f"attention_backward.{size}", call, scores, "op/s", f"backward of {source}")
        if size == HEADS[1]:
            few = q[:, :, :8].contiguous()
            queries = float(4 * threads * _POSITIONS)
            call = _bind(forward, q, few, few)
            yield _row("attention.query", call, queries, "op/s", "queries with 8 keys each")


def _wake_threads(torch: Any, count: int) -> None:
    values = torch.ones(count, **float32_on_cpu(torch))
    end = time.perf_counter() + THREADS_WAKE_S
    while time.perf_counter() < end:
        torch.exp(values)


def _bind(function: Any, *args: Any, **kwargs: Any) -> Call:
    return lambda: function(*args, **kwargs)


def _row(name: str, call: Call, amount: float, unit: str, source: str) -> Ceiling:
    return Ceiling(f"operator.{name}", amount / _best_seconds(call), unit, "measured", source)


def _best_seconds(call: Call) -> float:
    """The best of a few trials of at least ``_TRIAL_S`` each, per call."""
    call()
    best = float("inf")
    for _ in range(_TRIALS):
        calls, begin = 0, time.perf_counter()
        while (taken := time.perf_counter() - begin) < _TRIAL_S or not calls:
            call()
            calls += 1
        best = min(best, taken / calls)
    return best
