"""Recurrent layers, packed sequences, cells in a loop, scans by hand."""

from __future__ import annotations

from typing import Any

import torch
from benchmarks.breadth.case import FunctionModule, Program, Programs, inference, trained
from torch import Tensor, nn, randn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

PROGRAMS = Programs()
program = PROGRAMS.add


@program()
def lstm() -> Program:
    return trained(nn.LSTM(128, 128, 2, batch_first=True), randn(8, 64, 128))


@program()
def lstm_bidirectional_projected() -> Program:
    return trained(nn.LSTM(64, 64, 2, bidirectional=True, proj_size=32), randn(50, 8, 64))


@program()
def lstm_dropout() -> Program:
    return trained(nn.LSTM(64, 64, 3, dropout=0.2), randn(20, 8, 64))


@program()
def gru() -> Program:
    return trained(nn.GRU(128, 128, 1), randn(64, 8, 128))


@program()
def rnn_tanh() -> Program:
    return trained(nn.RNN(64, 64), randn(32, 8, 64))


@program()
def rnn_relu() -> Program:
    return trained(nn.RNN(64, 64, nonlinearity="relu"), randn(32, 8, 64))


@program()
def lstm_packed() -> Program:
    lengths = torch.tensor([20, 15, 9, 3])

    def forward(self: Any, x: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True)
        return pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]

    return trained(
        FunctionModule(forward, lstm=nn.LSTM(64, 64, batch_first=True)), randn(4, 20, 64)
    )


@program()
def lstm_cell_loop() -> Program:
    def forward(self: Any, x: Tensor) -> Tensor:
        hidden = cell = x.new_zeros(x.shape[1], 64)
        for step in range(x.shape[0]):
            hidden, cell = self.cell(x[step], (hidden, cell))
        return hidden

    return trained(FunctionModule(forward, cell=nn.LSTMCell(32, 64)), randn(16, 8, 32))


@program()
def gru_cell_loop() -> Program:
    def forward(self: Any, x: Tensor) -> Tensor:
        hidden = x.new_zeros(x.shape[1], 64)
        for step in range(x.shape[0]):
            hidden = self.cell(x[step], hidden)
        return hidden

    return trained(FunctionModule(forward, cell=nn.GRUCell(32, 64)), randn(16, 8, 32))


@program()
def rnn_cell_loop() -> Program:
    def forward(self: Any, x: Tensor) -> Tensor:
        hidden = x.new_zeros(x.shape[1], 64)
        for step in range(x.shape[0]):
            hidden = self.cell(x[step], hidden)
        return hidden

    return trained(FunctionModule(forward, cell=nn.RNNCell(32, 64)), randn(16, 8, 32))


@program()
def state_space_loop() -> Program:
    def forward(self: Any, x: Tensor) -> Tensor:
        hidden = torch.zeros(4, 32, 8)
        outputs = []
        for step in range(x.shape[1]):
            hidden = hidden * torch.exp(-self.a.abs()) + x[:, step, :, None] * self.b
            outputs.append((hidden * self.c).sum(-1))
        return torch.stack(outputs, 1)

    parts = {"a": randn(32, 8), "b": randn(32, 8), "c": randn(32, 8)}
    return trained(FunctionModule(forward, **parts), randn(4, 24, 32))


@program()
def lstm_inference_with_state() -> Program:
    state = (torch.zeros(1, 4, 32), torch.zeros(1, 4, 32))
    return inference(nn.LSTM(16, 32), randn(10, 4, 16), state)
