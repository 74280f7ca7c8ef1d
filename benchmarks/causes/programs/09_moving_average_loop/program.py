"""A deep, narrow network with a moving average of its weights (EMA)."""

import copy

import torch
from torch import nn

STEPS, DECAY = 700, 0.999


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.one, self.two = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return x + self.two(torch.relu(self.one(self.norm(x))))


def update_average(average, model):
    with torch.no_grad():
        for kept, new in zip(average.parameters(), model.parameters()):
            kept.copy_(kept * DECAY + new * (1 - DECAY))


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 48), *[Block(48) for _ in range(30)], nn.Linear(48, 1))
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for step in range(STEPS):
        values = torch.randn(16, 16)
        loss = (model(values).squeeze(1) - values[:, 0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update_average(average, model)
        if step % 100 == 0:
            print(step, loss.item())


main()
