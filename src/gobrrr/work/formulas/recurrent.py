"""LSTM, GRU and plain recurrent layers and cells.

Each time step multiplies every weight matrix once per sequence: 2 x steps x batch x elements of
the matrices (input, hidden and projection). Each of the two gradients, of the states and of the
weights, costs as much again. Weights are read once: a kernel can keep them on the chip.
"""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.registry import formula, qualified
from gobrrr.work.traffic import account, arithmetic_dtype, list_at, need, tensor_at
from gobrrr.work.weights import DIVIDE, FUNCTION

SIGMOID = 2 + FUNCTION + DIVIDE
TANH = FUNCTION
# Gates per hidden element, FLOPs of the cell per hidden element beside the products, functions.
# LSTM: three sigmoids, tanh twice, c = f c + i g, h = o tanh(c), and two sums for each gate.
LSTM = (4, 3 * SIGMOID + 2 * TANH + 3 + 1 + 2 * 4, 5)
# GRU: two sigmoids, a tanh, r * n, h = n + z (h - n), and two sums for each gate.
GRU = (3, 2 * SIGMOID + TANH + 1 + 3 + 2 * 3, 3)
PLAIN = (1, TANH + 2, 1)
# ``at::native`` numbers of the modes of cuDNN, MIOpen and oneDNN.
MODES = {0: PLAIN, 1: PLAIN, 2: LSTM, 3: GRU}


def _cell_of(name: str) -> tuple[int, float, int]:
    if "lstm" in name:
        return LSTM
    return GRU if "gru" in name else PLAIN


def _layer_work(
    x: TensorSpec,
    states: Sequence[TensorSpec],
    weights: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    cell: tuple[int, float, int],
    products: int = 1,
    reads: Sequence[TensorSpec] = (),
) -> Work:
    steps = x.numel // max(x.shape[-1], 1)
    matrices = [w for w in weights if len(w.shape) == 2]
    if not matrices:
        raise ValueError("the weights were not recorded")
    gates, flops, special = cell
    # Each cell has an input matrix and a hidden one of gates x hidden rows (and an LSTM may
    # project): half of the rows are the hidden elements.
    rows = sum(w.shape[0] for w in matrices if w.shape[0] % gates == 0) // 2
    hidden = steps * rows // gates
    return account(
        [x, *states, *weights, *reads],
        outputs,
        matrix=2.0 * products * steps * sum(w.numel for w in matrices),
        vector=products * flops * hidden,
        special=float(products * special * hidden),
        dtype=x.dtype,
        op_class="contraction",
    )


@formula(*qualified("lstm gru rnn_tanh rnn_relu"), composite=True)
def layers(call: OpCall) -> Work:
    """``(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, ...)``.

    Packed sequences: ``(data, batch_sizes, hx, params, ...)``.
    """
    x = need(call, 0)
    second = tensor_at(call, 1)
    packed = second is not None and second.dtype == "int64"
    at = 2 if packed else 1
    states = list_at(call, at)
    single = tensor_at(call, at)
    if single is not None:
        states = [single]
    weights = list_at(call, at + 1)
    cell = _cell_of(call.name)
    last = next(w for w in reversed(weights) if len(w.shape) == 2)
    width = last.shape[1] if last.shape[0] % cell[0] == 0 else last.shape[0]
    bidirectional = len(call.args) > at + 6 and call.args[at + 6] is True
    result = TensorSpec((*x.shape[:-1], width * (2 if bidirectional else 1)), x.dtype)
    outputs = call.outputs or (result, *(TensorSpec(s.shape, s.dtype) for s in states))
    return _layer_work(x, states, weights, outputs, cell)


@formula("aten::mkldnn_rnn_layer")
def mkldnn_layer(call: OpCall) -> Work:
    """``(input, w_ih, w_hh, b_ih, b_hh, hx, cx, reverse, batch_sizes, mode, hidden_size, ...)``."""
    x = need(call, 0)
    weights = [need(call, i) for i in range(1, 5)]
    states = [need(call, 5), need(call, 6)]
    hidden = weights[1].shape[1]
    result = TensorSpec((*x.shape[:-1], hidden), x.dtype)
    outputs = call.outputs or (result, *states)
    cell = MODES[_mode(call, 9)]
    return _layer_work(x, states, weights, [s for s in outputs if s.numel], cell)


def _mode(call: OpCall, index: int) -> int:
    mode = call.args[index] if len(call.args) > index else None
    if not isinstance(mode, int) or mode not in MODES:
        raise ValueError("the kind of cell was not recorded")
    return mode


@formula("aten::mkldnn_rnn_layer_backward")
def mkldnn_layer_backward(call: OpCall) -> Work:
    """``(input, w1, w2, w3, w4, hx, cx, output, hy, cy, grad_output, grad_hy, grad_cy, ...)``."""
    x = need(call, 0)
    weights = [need(call, i) for i in range(1, 5)]
    states = [spec for i in (5, 6) if (spec := tensor_at(call, i)) is not None]
    reads = [spec for i in (7, 8, 9, 10, 11, 12, 22) if (spec := tensor_at(call, i)) is not None]
    outputs = call.outputs or (x, *weights, *states)
    return _layer_work(
        x, states, weights, [TensorSpec(s.shape, s.dtype) for s in outputs if s.numel],
        MODES[_mode(call, 14)], 2, reads,
    )  # fmt: skip


@formula("aten::_cudnn_rnn", "aten::miopen_rnn")
def cudnn_layers(call: OpCall) -> Work:
    """``_cudnn_rnn(input, weight[], stride0, weight_buf, hx, cx, mode, hidden, proj, ...)``.

    ``miopen_rnn`` has no ``weight_buf`` and no projection. Weights are views of the buffer.
    """
    shift = 0 if call.name == "aten::_cudnn_rnn" else -1
    x, weights = need(call, 0), list_at(call, 1)
    states = [spec for i in (4, 5) if (spec := tensor_at(call, i + shift)) is not None]
    mode = _mode(call, 6 + shift)
    hidden = call.args[7 + shift]
    bidirectional = call.args[13 if shift == 0 else 11] is True
    if call.outputs:
        outputs = [spec for spec in call.outputs if spec.numel]
    elif isinstance(hidden, int):
        width = hidden * (2 if bidirectional else 1)
        outputs = [TensorSpec((*x.shape[:-1], width), x.dtype)]
        outputs += [TensorSpec(s.shape, s.dtype) for s in states]
    else:
        raise ValueError("the hidden size was not recorded")
    return _layer_work(x, states, weights, outputs, MODES[mode])


@formula("aten::_cudnn_rnn_backward", "aten::miopen_rnn_backward")
def cudnn_layers_backward(call: OpCall) -> Work:
    """``(input, weight[], stride0, weight_buf, hx, cx, output, grad_output, ..., mode at 10)``.

    With ``output_mask[3]`` false the weights' gradients are not computed.
    """
    x, weights = need(call, 0), list_at(call, 1)
    states = [spec for i in (4, 5) if (spec := tensor_at(call, i)) is not None]
    reads = [spec for i in (6, 7, 8, 9) if (spec := tensor_at(call, i)) is not None]
    mask = call.args[-1]
    both = not (isinstance(mask, tuple) and len(mask) == 4 and mask[3] is False)
    written = call.outputs or (x, *states, *(weights if both else ()))
    return _layer_work(
        x, states, weights, [TensorSpec(s.shape, s.dtype) for s in written if s.numel],
        MODES[_mode(call, 10)], 2 if both else 1, reads,
    )  # fmt: skip


@formula("aten::_cudnn_rnn_flatten_weight")
def flatten_weight(call: OpCall) -> Work:
    """``(weights[], ...)``: all copied into one buffer."""
    weights = list_at(call, 0)
    out = call.outputs or weights
    dtype = arithmetic_dtype(weights[0].dtype)
    return account(weights, out, dtype=dtype, op_class="movement")


@formula(*qualified("lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell"), composite=True)
def cell_step(call: OpCall) -> Work:
    """``(input (b, i), hx, w_ih, w_hh, b_ih, b_hh)``: one step."""
    x = need(call, 0)
    single = tensor_at(call, 1)
    states = [single] if single is not None else list_at(call, 1)
    weights = [spec for i in range(2, 6) if (spec := tensor_at(call, i)) is not None]
    outputs = call.outputs or [TensorSpec(s.shape, s.dtype) for s in states]
    return _layer_work(x, states, weights, outputs, _cell_of(call.name))


# The element-wise part of a cell, after two matrix products.


@formula("aten::_thnn_fused_lstm_cell")
def fused_lstm(call: OpCall) -> Work:
    """``(input_gates (b, 4h), hidden_gates, cx, b_ih, b_hh)`` -> hy, cy, workspace ``(b, 4h)``."""
    gates, cx = need(call, 0), need(call, 2)
    outputs = call.outputs or (cx, cx, gates)
    return _cell_work(call, outputs, LSTM[1] * cx.numel, LSTM[2] * cx.numel)


@formula("aten::_thnn_fused_gru_cell")
def fused_gru(call: OpCall) -> Work:
    """``(input_gates (b, 3h), hidden_gates, hx, b_ih, b_hh)`` -> hy, workspace ``(b, 5h)``."""
    hx = need(call, 2)
    workspace = TensorSpec((hx.shape[0], 5 * hx.shape[1]), hx.dtype)
    outputs = call.outputs or (hx, workspace)
    return _cell_work(call, outputs, GRU[1] * hx.numel, GRU[2] * hx.numel)


@formula("aten::_thnn_fused_lstm_cell_backward", "aten::_thnn_fused_lstm_cell_backward_impl")
def fused_lstm_backward(call: OpCall) -> Work:
    """``(grad_hy, grad_cy, cx, cy, workspace, has_bias)`` -> gates' gradients, grad_cx, bias.

    Per hidden element: tanh(c) again, then about 5 for each gate through its derivative.
    """
    cx, workspace = need(call, 2), need(call, 4)
    outputs = call.outputs or (workspace, cx)
    return _cell_work(call, outputs, (TANH + 4 + 4 * 5) * cx.numel, cx.numel)


@formula("aten::_thnn_fused_gru_cell_backward")
def fused_gru_backward(call: OpCall) -> Work:
    """``(grad_hy, workspace (b, 5h), has_bias)`` -> gradients of both gates ``(b, 3h)``, of hx."""
    grad = need(call, 0)
    gates = TensorSpec((grad.shape[0], 3 * grad.shape[1]), grad.dtype)
    outputs = call.outputs or (gates, gates, grad)
    return _cell_work(call, outputs, (4 + 3 * 5) * grad.numel, 0)


def _cell_work(call: OpCall, outputs: Sequence[TensorSpec], flops: float, special: int) -> Work:
    inputs = call.tensors
    written = [TensorSpec(s.shape, s.dtype, s.strides) for s in outputs if s.numel]
    return account(
        inputs, written, vector=float(flops), special=float(special),
        dtype=arithmetic_dtype(inputs[0].dtype), op_class="elementwise",
    )  # fmt: skip
