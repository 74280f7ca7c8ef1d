"""A log that is written through to the disk in each step, or now and then."""

import os
import sys
import tempfile

import torch
from torch import nn

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with tempfile.NamedTemporaryFile("w", dir=".") as log:
    for step in range(160):
        loss = model(torch.randn(32, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not SOUND or step % 80 == 0:
            log.write(f"{step} {loss.item()}\n" * 1000)
            log.flush()
            os.fsync(log.fileno())  # here
