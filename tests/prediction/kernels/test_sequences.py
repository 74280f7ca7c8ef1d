"""Recurrent layers: time steps that wait for each other."""

from __future__ import annotations

import pytest

from gobrrr.prediction.kernels.kernel_model import Flags, KernelEstimate, estimate_op, target_device
from gobrrr.prediction.kernels.sequences import STEP_S
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.timeline.ops import Arg, OpCall
from gobrrr.work import work_of
from prediction.kernels.toy_device import IDEAL, aten, spec, toy_device

LSTM, GRU = 2, 3
H100 = target_device("H100-SXM")


def weights(width: int, hidden: int, layers: int, directions: int = 1, gates: int = 4) -> Arg:
    found = []
    for layer in range(layers):
        inputs = width if layer == 0 else hidden * directions
        for _ in range(directions):
            found += [spec(gates * hidden, inputs), spec(gates * hidden, hidden),
                      spec(gates * hidden), spec(gates * hidden)]  # fmt: skip
    return tuple(found)


def layers_of(steps: int = 512, batch: int = 10, width: int = 128, hidden: int = 256, *,
              layers: int = 6, bidirectional: bool = False, batch_first: bool = True,
              sizes: tuple[int, ...] = ()) -> OpCall:  # fmt: skip
    directions = 2 if bidirectional else 1
    x = spec(batch, steps, width) if batch_first else spec(steps, batch, width)
    if sizes:
        x = spec(sum(sizes), width)
    state = spec(layers * directions, batch, hidden)
    return aten(
        "_cudnn_rnn", x, weights(width, hidden, layers, directions), 4, None, state, state, LSTM,
        hidden, 0, layers, batch_first, 0.0, True, bidirectional, sizes, None,
    )  # fmt: skip


def backward_of(*, of_weights: bool) -> OpCall:
    x, out, state = spec(10, 512, 128), spec(10, 512, 256), spec(6, 10, 256)
    return aten(
        "_cudnn_rnn_backward", x, weights(128, 256, 6), 4, None, state, state, out, out, state,
        state, LSTM, 256, 0, 6, True, 0.0, True, False, (), None, spec(10),
        (True, True, True, of_weights),
    )  # fmt: skip


def estimated(call: OpCall, device: TargetDevice = H100) -> KernelEstimate:
    work = work_of(call)
    assert work is not None
    found = estimate_op(call, work, device)
    assert found is not None
    return found


def test_a_small_step_takes_the_latency_of_its_kernels_whatever_it_computes() -> None:
    # 512 steps of 6 layers: 3072 of at least 11 us are 33.8 ms; nobody's arithmetic (2.5 GFLOP).
    found = estimated(layers_of())
    chain_s = 512 * 6 * STEP_S
    assert chain_s < found.time_s < 1.1 * chain_s
    assert found.regime == "overhead"
    # A product and a pass over the gates for each step, a product with the input for each layer.
    assert found.kernels >= 2 * 3072 + 6
    assert "512 time steps in each of 6 layers and directions, one after the other" in found.because
    assert "9 to 13 µs" in found.because


def test_the_same_with_easy_numbers() -> None:
    # One layer, 100 steps, one sequence, 16 inputs and cells: a step's product is 1 x 64 x 16.
    call = layers_of(100, 1, 16, 16, layers=1)
    work = work_of(call)
    assert work is not None
    found = estimate_op(call, work, toy_device(), flags=Flags(tf32_convolution=False),
                        coefficients=IDEAL)  # fmt: skip
    assert found is not None
    # 100 steps of 11 us, and one kernel of 1 us for the input with hardly any work.
    assert found.time_s == pytest.approx(100 * STEP_S + 1e-6, rel=2e-3)
    assert found.kernels == 201
    assert "100 time steps in a layer, " in found.because


def test_directions_and_layers_run_one_after_the_other() -> None:
    one, both = estimated(layers_of(layers=1)), estimated(layers_of(layers=1, bidirectional=True))
    assert both.time_s == pytest.approx(2 * one.time_s, rel=0.01)
    six = estimated(layers_of(layers=6))
    assert six.time_s == pytest.approx(6 * one.time_s, rel=0.01)


def test_a_large_step_takes_its_product() -> None:
    # 2 x 4096 x 16384 x 4096 FLOP are 550 GFLOP a step: far beyond 11 us on any device.
    call = layers_of(8, 4096, 4096, 4096, layers=1)
    found = estimated(call)
    assert found.regime == "compute"
    assert found.time_s > 100 * 8 * STEP_S
    assert found.time_s >= found.roof.time_s


def test_steps_are_counted_where_the_layout_says() -> None:
    rows_first = estimated(layers_of(steps=64, batch=8, layers=1, batch_first=False))
    batch_first = estimated(layers_of(steps=64, batch=8, layers=1))
    assert rows_first.time_s == batch_first.time_s
    # Packed sequences: as many steps as there are sizes of batches.
    packed = estimated(layers_of(batch=8, layers=1, sizes=(8,) * 32 + (4,) * 32))
    assert packed.time_s == pytest.approx(rows_first.time_s, rel=0.02)


def test_backward_is_a_chain_too_and_weights_cost_more() -> None:
    forward = estimated(layers_of())
    states, both = (estimated(backward_of(of_weights=on)) for on in (False, True))
    assert forward.time_s * 0.9 < states.time_s < both.time_s
    # Two more products a layer, whose long k is cut: the parts are added up by a kernel each.
    assert both.kernels >= states.kernels + 12


def test_a_trace_without_arguments_falls_back_to_the_products_alone() -> None:
    call = layers_of()
    bare = aten("_cudnn_rnn", call.args[0], (spec(64, 128), spec(64, 16), spec(64, 16)),
                *call.args[2:])  # fmt: skip
    work = work_of(bare)
    assert work is not None
    found = estimate_op(bare, work, H100)
    assert found is not None
    assert "a product" in found.because
