"""Sixteen micro-batches of one sample for each step, or one of sixteen."""

import sys

import torch
from torch import nn

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(6)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
x = torch.randn(16 if not SOUND else 256, 64)
parts = 1 if SOUND else 16
for _ in range(60):
    optimizer.zero_grad()
    for part in x.chunk(parts):
        loss = model(part).square().mean() / parts  # here
        loss.backward()
    optimizer.step()
