"""Buffers that malloc gives back and faults in again, or that are kept."""

import sys

import torch

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.out = torch.empty(12_000_000)

    def forward(self, x):
        return torch.mul(x, 2.0, out=self.out) if SOUND else x * 2.0  # here


model, x = Scale(), torch.randn(12_000_000)
with torch.no_grad():
    for _ in range(40):
        model(x)
