"""torch.compile with dynamic shapes, batches of 16 to 96 rows."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import random

import torch
from own_clock import clock
from torch import nn

torch.manual_seed(0)
random.seed(0)
net = nn.Sequential(
    nn.Linear(384, 1024),
    nn.GELU(),
    nn.LayerNorm(1024),
    nn.Linear(1024, 1024),
    nn.GELU(),
    nn.Linear(1024, 10),
)
model = torch.compile(net, dynamic=True)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
for _ in range(300):
    n = random.randint(16, 96)
    x, y = torch.randn(n, 384), torch.randint(0, 10, (n,))
    with clock.part("step"):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
