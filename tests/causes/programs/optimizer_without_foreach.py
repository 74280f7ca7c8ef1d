"""Adam over one tensor after another, or fused."""

import sys

import torch
from torch import nn

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(40)))
how = {"fused": True} if SOUND else {"foreach": False}
optimizer = torch.optim.Adam(model.parameters(), **how)
x = torch.randn(64, 16)
for _ in range(60):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # here
