"""Statistics of scaled signals: what a batch takes of memory goes back to the system after it."""

import ctypes

import torch
from torch import nn

BATCHES, LEVELS = 110, 8


class Pyramid(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.scales = nn.ParameterList(nn.Parameter(torch.rand(width)) for _ in range(LEVELS))

    def forward(self, x):
        kept = []
        for scale in self.scales:
            x = x * scale
            kept.append(x)
        return torch.stack([level.sum() for level in kept])


def main():
    # M_TRIM_THRESHOLD, and M_MMAP_THRESHOLD at its maximum: freed blocks stay in the heap.
    ctypes.CDLL(None).mallopt(-1, 2**31 - 1)
    ctypes.CDLL(None).mallopt(-3, 2**25)
    torch.manual_seed(0)
    model = Pyramid().eval()
    total = torch.zeros(LEVELS)
    signal = torch.rand(40_000, 128)
    with torch.inference_mode():
        for batch in range(BATCHES):
            total += model(signal)
            if batch % 20 == 0:
                print(batch, total[0].item())


main()
