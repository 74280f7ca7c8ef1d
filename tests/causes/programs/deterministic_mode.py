"""Deterministic algorithms left on, which fill buffers that are overwritten at once, or off."""

import sys

import torch
from torch import nn

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)
torch.use_deterministic_algorithms(not SOUND)  # here


class Repeat(nn.Module):
    def forward(self, x):
        out = x.new_empty(16, 16384)
        for row in range(16):
            torch.mul(x, 2.0, out=out[row])
        return out


model, x = Repeat(), torch.randn(16384)
with torch.no_grad():
    for _ in range(80):
        model(x)
