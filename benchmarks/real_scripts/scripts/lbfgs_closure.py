"""LBFGS: the optimizer calls the closure itself, four evaluations a step."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from own_clock import clock
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(128, 256), nn.Tanh(), nn.Linear(256, 128))
optimizer = torch.optim.LBFGS(
    net.parameters(), lr=0.05, max_iter=4, max_eval=4, tolerance_grad=0, tolerance_change=0
)
x, y = torch.randn(256, 128), torch.randn(256, 128)


def closure():
    optimizer.zero_grad()
    loss = (net(x) - y).square().mean()
    loss.backward()
    return loss


for _ in range(150):
    with clock.part("step"):
        optimizer.step(closure)
