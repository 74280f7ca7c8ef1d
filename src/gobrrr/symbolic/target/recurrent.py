"""Recurrent layers and cells, and packed sequences, as a GPU carries them out."""

from __future__ import annotations

from typing import Any

from gobrrr.symbolic.stand_ins import real_call, value_of
from gobrrr.timeline.errors import InputError

# cuDNN's and MIOpen's numbers of the recurrent kinds (enum miopenRNNMode_t, cudnnRNNMode_t).
_RNN_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}


def _lstm_cell(
    input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None
) -> Any:
    """``aten/src/ATen/native/RNN.cpp``: two products, then one kernel for all four gates."""
    import torch

    hidden, cell = hx
    return torch.ops.aten._thnn_fused_lstm_cell(
        input @ w_ih.t(), hidden @ w_hh.t(), cell, b_ih, b_hh
    )[:2]


def _gru_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    import torch

    return torch.ops.aten._thnn_fused_gru_cell(input @ w_ih.t(), hx @ w_hh.t(), hx, b_ih, b_hh)[0]


def _recurrent(mode: int) -> Any:
    def kernel(
        input: Any,
        hx: Any,
        params: Any,
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        options = (num_layers, batch_first, dropout, train, bidirectional)
        return _layers(mode, input, hx, params, has_biases, options, [])

    return kernel


def _packed(mode: int) -> Any:
    """Of a packed sequence: the batch of each step steers the kernel, and must be known."""

    def kernel(
        data: Any,
        batch_sizes: Any,
        hx: Any,
        params: Any,
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
    ) -> Any:
        options = (num_layers, False, dropout, train, bidirectional)
        return _layers(mode, data, hx, params, has_biases, options, _batches(batch_sizes))

    return kernel


def _batches(batch_sizes: Any) -> list[int]:
    """The batch of each step of a packed sequence, as numbers."""
    sizes = value_of(batch_sizes)
    if sizes is None:
        raise InputError(
            "the batch size at each time step of a packed sequence depends on data; pack it with "
            "pack_padded_sequence inside the step, and give an example of a length with "
            "--size-hint N (size_hint=N in Python)"
        )
    found: list[int] = real_call(sizes.tolist, (), {})
    return found


def pad_packed(
    data: Any, batch_sizes: Any, batch_first: bool, padding_value: Any, total_length: int
) -> Any:
    """``aten/src/ATen/native/PackedSequence.cpp``: one copy for all steps of the same batch."""
    import torch

    sizes = _batches(batch_sizes)
    longest, shape = len(sizes), data.shape[1:]
    if 0 < total_length < longest:
        raise ValueError(
            f"Expected total_length to be at least the length of the longest sequence in input, "
            f"but got total_length={total_length} and max sequence length being {longest}"
        )
    padded = data.new_full((max(longest, total_length), sizes[0], *shape), padding_value)
    begin = row = 0
    for end in range(1, longest + 1):
        batch = sizes[begin]
        if end == longest or sizes[end] != batch:
            rows = (end - begin) * batch
            part = data[row : row + rows].view(end - begin, batch, *shape)
            padded[begin:end, :batch].copy_(part)
            begin, row = end, row + rows
    lengths = torch.tensor([sum(size > i for size in sizes) for i in range(sizes[0])])
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def _layers(
    mode: int,
    input: Any,
    hx: Any,
    params: Any,
    has_biases: bool,
    options: tuple[Any, ...],
    batch_sizes: list[int],
) -> Any:
    """``options``: layers, batch first, dropout, train, bidirectional."""
    import torch

    is_lstm = mode == _RNN_MODES["lstm"]
    hidden, cell = (hx[0], hx[1]) if is_lstm else (hx, None)
    size = cell.shape[-1] if cell is not None else hidden.shape[-1]
    projected = hidden.shape[-1] if hidden.shape[-1] != size else 0
    # Four weights per layer and direction: input, hidden and their biases.
    per_layer = (4 if has_biases else 2) + (1 if projected else 0)
    # On a GPU the weights lie in one buffer from the start.
    buffer = input.new_empty(sum(weight.numel() for weight in params))
    out, last_hidden, last_cell, _, _ = torch.ops.aten._cudnn_rnn(
        input, list(params), per_layer, buffer, hidden, cell, mode, size, projected, *options,
        batch_sizes, None,
    )  # fmt: skip
    return (out, last_hidden, last_cell) if is_lstm else (out, last_hidden)


def _recurrent_backward_shapes(
    input: Any, weight: Any, stride: int, buffer: Any, hx: Any, cx: Any, *_: Any, **__: Any
) -> Any:
    """Gradients have the shapes of what they are of (torch has no such rule for this operator)."""
    import torch

    grads = [torch.empty_like(w) for w in weight]
    cell = torch.empty_like(cx) if cx is not None else torch.empty_like(hx)
    return torch.empty_like(input), torch.empty_like(hx), cell, grads


def _lstm_cell_shapes(input_gates: Any, hidden_gates: Any, cx: Any, *_: Any, **__: Any) -> Any:
    """The new states, and the gates as a workspace (torch's own rule wants biases)."""
    import torch

    return torch.empty_like(cx), torch.empty_like(cx), torch.empty_like(input_gates)


def _gru_cell_shapes(input_gates: Any, hidden_gates: Any, hx: Any, *_: Any, **__: Any) -> Any:
    """The new state, and a workspace of five values for each of its elements."""
    import torch

    return torch.empty_like(hx), hx.new_empty((hx.shape[0], 5 * hx.shape[1]))


def _gru_cell_backward_shapes(grad: Any, workspace: Any, has_bias: bool) -> Any:
    import torch

    gates = (grad.shape[0], 3 * grad.shape[1])
    biases = [workspace.new_empty(gates[1:] if has_bias else (0,)) for _ in range(2)]
    made = [workspace.new_empty(gates) for _ in range(2)]
    return *made, torch.empty_like(grad), *biases


# Operators of a GPU alone, whose results' shapes torch cannot tell without its kernels.
SHAPES = {
    "_thnn_fused_lstm_cell": _lstm_cell_shapes,
    "_cudnn_rnn_backward": _recurrent_backward_shapes,
    "_thnn_fused_gru_cell": _gru_cell_shapes,
    "_thnn_fused_gru_cell_backward": _gru_cell_backward_shapes,
}
# The composites that choose these kernels on a GPU.
RECURRENT = {
    "lstm_cell": _lstm_cell,
    "gru_cell": _gru_cell,
    **{f"{name}.input": _recurrent(mode) for name, mode in _RNN_MODES.items()},
    **{f"{name}.data": _packed(mode) for name, mode in _RNN_MODES.items()},
}
