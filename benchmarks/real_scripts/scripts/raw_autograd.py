"""Tensors with gradients and an optimizer, no module anywhere."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from own_clock import clock

torch.manual_seed(0)
w1 = (torch.randn(512, 1024) / 22).requires_grad_()
w2 = (torch.randn(1024, 256) / 32).requires_grad_()
optimizer = torch.optim.Adam([w1, w2], lr=1e-3)
x, y = torch.randn(128, 512), torch.randn(128, 256)
for _ in range(300):
    with clock.part("step"):
        optimizer.zero_grad()
        loss = ((x @ w1).relu() @ w2 - y).square().mean()
        loss.backward()
        optimizer.step()
