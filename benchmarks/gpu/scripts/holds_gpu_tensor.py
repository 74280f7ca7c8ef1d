"""A script that has put a tensor on the GPU and trains a network on the processor."""

import os

import torch
from step_clock import ready, step_done
from torch import nn

ready()
kept = torch.ones(1024, 1024, device=os.environ.get("DEVICE", "cuda"))
width = 64 if os.environ.get("SMALL") else 512
model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step_done()
for _ in range(int(os.environ.get("STEPS", "150"))):
    loss = model(torch.randn(128, width)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step_done()
print(f"kept {kept.sum().item():.0f}")
