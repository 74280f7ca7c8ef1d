"""Statistics of scaled signals: what a batch takes of memory goes back to the system after it."""

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
