"""Small experts one after the other, or in one batched product."""

import sys

import torch
from torch import nn

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)


class Mixture(nn.Module):
    def __init__(self, experts=24, width=64):
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))
        self.weight = nn.Parameter(torch.randn(experts, width, width) / 8)

    def forward(self, x):
        weight = torch.softmax(self.router(x), -1)
        if SOUND:
            return torch.einsum("ni,eio,ne->no", x, self.weight, weight)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            out = out + weight[:, number : number + 1] * expert(x)  # here
        return out


model = nn.Sequential(Mixture(), Mixture())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(80):
    loss = model(torch.randn(32, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
