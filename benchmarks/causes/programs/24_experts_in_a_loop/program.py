"""A mixture of many small experts, called one after the other."""

import torch
from torch import nn

STEPS, EXPERTS, WIDTH = 400, 48, 32


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))

    def forward(self, x):
        weight = torch.softmax(self.gate(x), -1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            out = out + weight[:, number : number + 1] * expert(x)
        return out


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, WIDTH), Mixture(), Mixture(), nn.Linear(WIDTH, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        values = torch.randn(32, 16)
        loss = (model(values).squeeze(1) - values[:, 0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(step, loss.item())


main()
