"""A moving average of weights, tensor by tensor, or of all at once."""

import sys

import torch
from torch import nn

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(60)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
weights = [p.detach() for p in model.parameters()]
averages = [p.clone() for p in weights]
x = torch.randn(64, 16)
for _ in range(60):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if SOUND:
        torch._foreach_lerp_(averages, weights, 0.01)
    else:
        for average, weight in zip(averages, weights):
            average.mul_(0.99).add_(weight, alpha=0.01)  # here
