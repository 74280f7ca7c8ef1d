"""A model that is called for each row of a batch, or once."""

import sys

import torch
from torch import nn

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(60):
    x = torch.randn(48, 64)
    if SOUND:
        out = model(x)
    else:
        out = torch.cat([model(x[row : row + 1]) for row in range(48)])  # here
    loss = out.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
