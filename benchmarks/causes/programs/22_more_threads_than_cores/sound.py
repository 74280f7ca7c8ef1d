"""A small recurrent forecaster; the number of threads comes from another machine."""

import torch
from torch import nn

STEPS = 200


class Forecaster(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.cell = nn.GRU(16, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, 16)

    def forward(self, series):
        hidden, _ = self.cell(series)
        return self.head(hidden)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        series = torch.randn(64, 49, 16).cumsum(1)
        found = model(series[:, :-1])
        loss = nn.functional.mse_loss(found, series[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 40 == 0:
            print(step, loss.item())


main()
