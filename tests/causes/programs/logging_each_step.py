"""A line for each value of a batch in each step, or now and then."""

import logging
import os
import sys

import torch
from torch import nn

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)
log = logging.getLogger("run")
log.addHandler(logging.FileHandler(os.devnull))
log.setLevel(logging.INFO)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(160):
    loss = model(torch.randn(32, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if not SOUND or step % 80 == 0:
        for value in range(1 if SOUND else 200):
            log.info("step %d value %d loss %s", step, value, loss)  # here
