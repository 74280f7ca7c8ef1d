"""A normalising flow of affine couplings fits two moons."""

import math

import torch
from own_clock import mark
from torch import nn


class Coupling(nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.register_buffer("mask", mask)
        self.net = nn.Sequential(
            nn.Linear(2, 64), nn.LeakyReLU(), nn.Linear(64, 64), nn.LeakyReLU(), nn.Linear(64, 4)
        )

    def forward(self, x):
        kept = x * self.mask
        s, t = self.net(kept).chunk(2, 1)
        s, t = torch.tanh(s) * (1 - self.mask), t * (1 - self.mask)
        return kept + (1 - self.mask) * (x * torch.exp(s) + t), s.sum(1)


class Flow(nn.Module):
    def __init__(self, layers=8):
        super().__init__()
        masks = [torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])]
        self.layers = nn.ModuleList(Coupling(masks[i % 2]) for i in range(layers))

    def log_prob(self, x):
        total = 0.0
        for layer in self.layers:
            x, log_det = layer(x)
            total = total + log_det
        return total - 0.5 * x.square().sum(1) - math.log(2 * math.pi)


def moons(count):
    angle = math.pi * torch.rand(count)
    side = torch.randint(0, 2, (count,)).float()
    x = torch.stack([torch.cos(angle) + side, torch.sin(angle) * (1 - 2 * side)], 1)
    return x + 0.05 * torch.randn(count, 2)


torch.manual_seed(0)
flow = Flow()
optimizer = torch.optim.Adam(flow.parameters(), lr=5e-4, weight_decay=1e-5)
mark("setup")
for step in range(450):
    optimizer.zero_grad()
    loss = -flow.log_prob(moons(512)).mean()
    loss.backward()
    optimizer.step()
    mark()
    if step % 100 == 0:
        print(step, loss.item())
