"""Meta-learning of sine waves: gradients through inner updates."""

import math

import torch
from own_clock import mark
from torch import nn
from torch.func import functional_call


def task():
    return 0.1 + 4.9 * torch.rand(()), math.pi * torch.rand(())


def examples(amplitude, phase, count=20):
    x = torch.rand(count, 1) * 10 - 5
    return x, amplitude * torch.sin(x + phase)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
mark("setup")
for iteration in range(160):
    outer = 0.0
    for _ in range(4):
        chosen = task()
        weights = dict(model.named_parameters())
        for _ in range(3):
            x, y = examples(*chosen)
            loss = nn.functional.mse_loss(functional_call(model, weights, (x,)), y)
            gradients = torch.autograd.grad(loss, weights.values(), create_graph=True)
            weights = {n: w - 0.01 * g for (n, w), g in zip(weights.items(), gradients)}
        x, y = examples(*chosen)
        outer = outer + nn.functional.mse_loss(functional_call(model, weights, (x,)), y)
    optimizer.zero_grad()
    (outer / 4).backward()
    optimizer.step()
    mark()
    if iteration % 40 == 0:
        print(iteration, outer.item() / 4)
