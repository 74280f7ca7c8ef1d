"""Recurrent layers on GPUs: each time step of a layer waits for the one before.

The products with the input of all time steps are one product; those with the state cannot be, nor
can the cell's element-wise part (J. Appleyard, T. Kocisky, P. Blunsom, "Optimizing Performance of
Recurrent Neural Networks on GPUs", arXiv 1604.01946, sections 3.1 and 3.2). So a layer of T steps
is a chain of 2 T small kernels, and however little they compute, a step takes no less than
``STEP_S``. Their section 3.3 runs steps of neighbouring layers beside each other; the steps of
cuDNN 9 that ``STEP_S`` is from did not, and neither do the two directions of a layer here.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from gobrrr.prediction.kernels.coefficients import Coefficients
from gobrrr.prediction.kernels.kernels import Kernels
from gobrrr.prediction.kernels.passes import Pass, arithmetic_seconds, seconds_of, traffic_seconds
from gobrrr.prediction.kernels.products import Product, time_of_product
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.timeline.quantities import time_text
from gobrrr.work.estimate import Work
from gobrrr.work.traffic import list_at, need

# Seconds of a time step of one layer whose work is negligible, cuDNN on an H100 in float32: 9 to
# 13 us (512 steps of 6 LSTM layers take 39 ms, 12.7 us each), the middle of it. Not measured
# elsewhere and taken for every GPU: it is the launch of two kernels that depend on each other.
# cuDNN's persistent kernels (PyTorch: float16, one layer, some sizes;
# aten/src/ATen/native/cudnn/RNN.cpp) need less.
STEP_S = 11e-6


class _Places(NamedTuple):
    """Where the arguments of an operator lie; -1: it has none."""

    projection: int
    batch_first: int
    batch_sizes: int
    mask: int = -1


_OPS = {
    "aten::_cudnn_rnn": _Places(8, 10, 14),
    "aten::miopen_rnn": _Places(-1, 8, 12),
    "aten::_cudnn_rnn_backward": _Places(12, 14, 18, 21),
    "aten::miopen_rnn_backward": _Places(-1, 13, 17, 20),
}


class _Layer(NamedTuple):
    """One layer in one direction: rows of all its gates, elements of input, state, projection."""

    rows: int
    inputs: int
    state: int
    projected_from: int


def is_sequence(call: OpCall) -> bool:
    """Whether the op is a recurrent layer over all time steps, as a GPU's library runs it."""
    return call.name in _OPS


def time_of_sequence(
    call: OpCall, work: Work, device: TargetDevice, c: Coefficients, rate: float
) -> Kernels | None:
    """Expected time of all its kernels; ``None`` where a ceiling is missing.

    Per layer and direction: one product of T b rows with the input (backward: one for the gradient
    of the input, and two more for those of the weights), and T steps of a product of b rows with
    the state and of an element-wise pass over the gates, each step at least ``STEP_S``.
    ``rate``: FLOP/s of the path that the products take.

    Raises:
        IndexError, ValueError, TypeError: the trace leaves arguments out.
    """
    places = _OPS[call.name]
    steps, batch = _steps_and_batch(call, places)
    layers = _layers(call, places)
    backward = call.name.endswith("_backward")
    mask = call.args[places.mask] if backward and len(call.args) > places.mask else None
    of_weights = backward and not (isinstance(mask, tuple) and mask[-1] is False)
    item = call.tensors[0].item_size_bytes or 4
    one_s = max(device.kernel_fixed_s, c.kernel_floor_s)
    seconds = compute_s = memory_s = latency_s = 0.0
    count = 0

    def product(m: int, n: int, k: int) -> Product:
        moved = float((m * n + n * k + m * k) * item)
        # The state's weights stay in the cache from step to step if they fit into half of it.
        cold = 0.0 if moved <= device.cache_bytes / 2 else moved
        return Product(m, n, k, 1, work.compute_dtype, cold)

    for layer in layers:
        once = [product(steps * batch, layer.rows, layer.inputs)]
        if of_weights:
            once.append(product(layer.rows, layer.inputs, steps * batch))
            once.append(product(layer.rows, layer.state, steps * batch))
        each = [product(batch, layer.rows, layer.state)]
        if layer.projected_from:
            each.append(product(batch, layer.state, layer.projected_from))
        # Gates of the input and of the state come in, the state, the cell, and for training the
        # gates go out.
        gates = 3.0 * batch * layer.rows
        cell = Pass(bytes_moved=gates * item, vector_flops=10 * gates, dtype=work.compute_dtype)
        cell_s = seconds_of(cell, device, c)
        if cell_s is None:
            return None
        found = [time_of_product(one, device, c, rate) for one in (*once, *each)]
        step_s = cell_s
        step_kernels = 1
        for at, timed in enumerate(found):
            if timed is None:
                return None
            times = 1 if at < len(once) else steps
            seconds += times * timed.seconds
            compute_s += times * timed.compute_s
            memory_s += times * timed.memory_s
            count += times * timed.kernels
            if at >= len(once):
                step_s += timed.seconds
                step_kernels += timed.kernels
        seconds += steps * cell_s
        compute_s += steps * (arithmetic_seconds(cell, device, c) or 0.0)
        memory_s += steps * (traffic_seconds(cell, device, c) or 0.0)
        count += steps
        latency_s += steps * max(0.0, STEP_S - step_s - step_kernels * one_s)
    where = "a layer" if len(layers) == 1 else f"each of {len(layers)} layers and directions"
    how = (
        f"{steps} time steps in {where}, one after the other, at least {time_text(STEP_S)} each "
        "(cuDNN on an H100: 9 to 13 µs)"
    )
    return Kernels(seconds, compute_s, memory_s, count, how, latency_s)


def _steps_and_batch(call: OpCall, places: _Places) -> tuple[int, int]:
    x = need(call, 0)
    sizes = call.args[places.batch_sizes] if len(call.args) > places.batch_sizes else ()
    if isinstance(sizes, tuple) and sizes:
        # Packed: all rows of all steps in one dimension.
        return len(sizes), ceil(x.shape[0] / len(sizes))
    batch_first = call.args[places.batch_first] is True
    first, second = x.shape[0], x.shape[1]
    return (second, first) if batch_first else (first, second)


def _layers(call: OpCall, places: _Places) -> list[_Layer]:
    matrices = [w for w in list_at(call, 1) if len(w.shape) == 2]
    projected = places.projection >= 0 and bool(call.args[places.projection])
    per_layer = 3 if projected else 2
    if not matrices or len(matrices) % per_layer:
        raise ValueError("the weights were not recorded")
    groups = [matrices[i : i + per_layer] for i in range(0, len(matrices), per_layer)]
    return [_layer(group) for group in groups]


def _layer(matrices: list[TensorSpec]) -> _Layer:
    of_input, of_state = matrices[0].shape, matrices[1].shape
    projected_from = matrices[2].shape[1] if len(matrices) > 2 else 0
    return _Layer(of_state[0], of_input[1], of_state[1], projected_from)
