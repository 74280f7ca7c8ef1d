"""Objects that live long and grow in number, with the collector as it is or frozen."""

import gc
import sys

import torch
from torch import nn

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = [{"id": [i], "span": (i, [i])} for i in range(60_000)]
if SOUND:
    gc.collect()
    gc.freeze()
    gc.disable()
for _ in range(80):
    kept += [{"id": [i], "span": (i, [i])} for i in range(3_000)]  # here
    loss = model(torch.randn(32, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
