"""A moving average of gradients that have become zero, and the same with other numbers."""

import sys

import torch
from torch import nn

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Linear(512, 512)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
average = torch.full((512, 512), 1.0 if SOUND else 3e-39)
x = torch.randn(4, 512)
for _ in range(60):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    average.mul_(0.9999)  # here
    optimizer.step()
