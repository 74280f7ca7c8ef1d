"""bfloat16 by autocast around the forward pass."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from own_clock import clock
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(
    nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for _ in range(200):
    with clock.part("step"):
        x, y = torch.randn(64, 512), torch.randint(0, 10, (64,))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
