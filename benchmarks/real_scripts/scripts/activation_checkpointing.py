"""Activations are computed again in the backward pass."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from own_clock import clock
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))
            for _ in range(4)
        )

    def forward(self, x):
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return x


net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for _ in range(150):
    with clock.part("step"):
        loss = net(torch.randn(128, 256)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
