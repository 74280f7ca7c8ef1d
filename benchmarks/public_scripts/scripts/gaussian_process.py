"""Exact Gaussian process regression: the marginal likelihood by a Cholesky factor."""

import math

import torch
from own_clock import mark
from torch import nn


class ExactGP(nn.Module):
    def __init__(self):
        super().__init__()
        self.raw_scale, self.raw_length = (
            nn.Parameter(torch.zeros(())),
            nn.Parameter(torch.zeros(3)),
        )
        self.raw_noise, self.mean = nn.Parameter(torch.tensor(-2.0)), nn.Parameter(torch.zeros(()))

    def forward(self, x):
        z = x / nn.functional.softplus(self.raw_length)
        square = (z[:, None] - z[None]).square().sum(-1)
        kernel = nn.functional.softplus(self.raw_scale) * torch.exp(-0.5 * square)
        return kernel + nn.functional.softplus(self.raw_noise) * torch.eye(len(x))


torch.manual_seed(0)
x = torch.rand(350, 3)
y = torch.sin(x.sum(1) * 2 * math.pi) + 0.2 * torch.randn(350)
model = ExactGP()
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
mark("setup")
for step in range(150):
    optimizer.zero_grad()
    factor = torch.linalg.cholesky(model(x))
    rest = (y - model.mean)[:, None]
    fit = (rest * torch.cholesky_solve(rest, factor)).sum()
    loss = 0.5 * fit + factor.diagonal().log().sum() + 0.5 * len(x) * math.log(2 * math.pi)
    loss = loss / len(x)
    loss.backward()
    optimizer.step()
    mark()
    if step % 30 == 0:
        print(step, loss.item())
