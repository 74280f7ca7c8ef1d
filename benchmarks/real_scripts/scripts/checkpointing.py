"""Weights and optimizer are saved every ten steps."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tempfile

import torch
from own_clock import clock
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
with tempfile.TemporaryDirectory() as folder:
    for i in range(240):
        with clock.part("step"):
            x = torch.randn(64, 512)
            loss = (net(x) - x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if i % 10 == 9:
            with clock.part("checkpoint"):
                state = {"net": net.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, f"{folder}/last.pt")
