"""Wide elementwise maths whose tensors come from the system and go back to it in each step."""

import ctypes

import torch
from torch import nn

STEPS = 90


class Smooth(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        x = x * self.scale + self.shift
        return x * torch.sigmoid(x)


def main():
    # M_TRIM_THRESHOLD, and M_MMAP_THRESHOLD at its maximum: freed blocks stay in the heap.
    ctypes.CDLL(None).mallopt(-1, 2**31 - 1)
    ctypes.CDLL(None).mallopt(-3, 2**25)
    torch.manual_seed(0)
    model = nn.Sequential(*[Smooth() for _ in range(3)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        values = torch.ones(30_000, 128).mul_(0.01 * (step % 7))
        loss = (model(values) - 0.5).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, loss.item())


main()
