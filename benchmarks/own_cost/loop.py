"""A loop that times its own steps: the program under test of ``run.py``. Prints JSON at its end."""

import itertools
import json
import sys
import time

import torch
from torch import nn

torch.manual_seed(0)
size, steps = int(sys.argv[1]), int(sys.argv[2])
model = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(size, size), nn.GELU())))
optimizer = torch.optim.AdamW(model.parameters())
data = torch.randn(64, size)
ends = []
for _ in range(steps):
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()
    ends.append(time.perf_counter())
print(json.dumps({"steps_s": [b - a for a, b in itertools.pairwise(ends)]}))
