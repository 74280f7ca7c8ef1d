"""Functions of arrays of 40 MB, each result in fresh memory: every step maps and faults it in."""

import torch
from step_clock import tick
from torch import nn


class Field(nn.Module):
    def forward(self, x):
        return (torch.sin(x) * 0.5 + x.square()).clamp(-1, 1).mean()


torch.manual_seed(0)
field, x = Field(), torch.randn(10_000_000)
with torch.no_grad():
    for _ in range(60):
        field(x)
        tick()
