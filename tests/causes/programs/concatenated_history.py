"""Outputs that are concatenated to those of all steps before, or written into one buffer."""

import sys

import torch
from torch import nn

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)
WIDTH, ROWS = 256, 2048

model = nn.Linear(WIDTH, WIDTH)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
STEPS = 40
history, buffer = torch.zeros(0), torch.ones(STEPS, ROWS, WIDTH)
for step in range(STEPS):
    x = torch.randn(ROWS, WIDTH)
    y = model(x)
    optimizer.zero_grad()
    y.square().mean().backward()
    optimizer.step()
    if SOUND:
        buffer[step] = y.detach()
    else:
        history = torch.cat([history, y.detach().flatten()])  # here
