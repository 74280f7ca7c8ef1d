"""Gradients are clipped by a function that reads the norm of each tensor back."""

import torch
from torch import nn

STEPS = 500


def clipped(parameters, limit):
    return nn.utils.clip_grad_norm_(parameters, limit)


def main():
    torch.manual_seed(0)
    layers = [layer for _ in range(60) for layer in (nn.Linear(32, 32), nn.ReLU())]
    model = nn.Sequential(nn.Linear(8, 32), *layers, nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    parameters = list(model.parameters())
    for step in range(STEPS):
        values = torch.randn(16, 8)
        loss = (model(values).squeeze(1) - values[:, 0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        clipped(parameters, 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


main()
