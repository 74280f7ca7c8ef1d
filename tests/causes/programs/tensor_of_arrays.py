"""A tensor of a list of arrays, number by number, or stacked."""

import sys

import numpy as np
import torch
from torch import nn

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
frames = [np.random.rand(400).astype(np.float32) for _ in range(64)]
for _ in range(60):
    if SOUND:
        batch = torch.from_numpy(np.stack(frames))
    else:
        batch = torch.tensor(frames)  # here
    loss = model(batch[:, :64]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
