"""Anomaly detection left on, or off."""

import sys

import torch
from torch import nn

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)
torch.autograd.set_detect_anomaly(not SOUND)  # here
model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(20)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
x = torch.randn(256, 64)
for _ in range(80):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
