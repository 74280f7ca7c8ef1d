"""A recurrent network written by hand, still inside the profiler's context."""

import torch
from torch import nn

STEPS = 80


class Cell(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.gates = nn.Linear(2 * width, 2 * width)
        self.new = nn.Linear(2 * width, width)

    def forward(self, x, state):
        reset, update = torch.sigmoid(self.gates(torch.cat([x, state], 1))).chunk(2, 1)
        new = torch.tanh(self.new(torch.cat([x, reset * state], 1)))
        return update * state + (1 - update) * new


def train(cell, head, optimizer):
    for step in range(STEPS):
        series = torch.randn(32, 40, 48)
        state = torch.zeros(32, 48)
        for moment in series.unbind(1):
            state = cell(moment, state)
        loss = (head(state).squeeze(1) - series[:, -1].mean(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, loss.item())


def main():
    torch.manual_seed(0)
    cell, head = Cell(), nn.Linear(48, 1)
    optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=1e-3)
    with torch.autograd.profiler.profile(record_shapes=True, with_stack=True):
        train(cell, head, optimizer)


main()
