"""A mask that a comprehension counts out, or arange."""

import sys

import torch
from torch import nn

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)


def mask(length):
    if SOUND:
        place = torch.arange(length)
        return place[None, :] > place[:, None]
    return torch.tensor([[j > i for j in range(length)] for i in range(length)])  # here


model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(80):
    x = model(torch.randn(128, 64))
    loss = (x @ x.T).masked_fill(mask(128), 0.0).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
