"""A training loop that keeps a device busy: what has a neighbour on its GPU, and what has none."""

import os

import torch
from step_clock import ready, step_done
from torch import nn

ready()
device, small = os.environ.get("DEVICE", "cuda"), bool(os.environ.get("SMALL"))
width = 64 if small else 4096
model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
x = torch.randn(64 if small else 4096, width, device=device)
step_done()
for _ in range(int(os.environ.get("STEPS", "100"))):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step_done()
print(f"loss {loss.item():.4f}")
