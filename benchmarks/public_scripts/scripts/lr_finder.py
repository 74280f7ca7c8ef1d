"""A range test of the learning rate, then training at the rate found."""

import copy

import torch
from own_clock import mark
from torch import nn


def batch():
    x = torch.randn(128, 3, 24, 24)
    return x, (x.mean((1, 2, 3)) > 0).long()


def update(model, optimizer):
    x, y = batch()
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mark()
    return loss.item()


torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, 2, 1),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, 2, 1),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(32 * 36, 2),
)
kept = copy.deepcopy(model.state_dict())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5, momentum=0.9)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=(1e5) ** (1 / 100))
history, smooth = [], None
mark("setup")
for _ in range(100):
    loss = update(model, optimizer)
    smooth = loss if smooth is None else 0.05 * loss + 0.95 * smooth
    history.append((optimizer.param_groups[0]["lr"], smooth))
    scheduler.step()
rates = [rate for rate, _ in history]
falls = [b - a for (_, a), (_, b) in zip(history, history[1:])]
best = rates[falls.index(min(falls))]
print("suggested:", best)
model.load_state_dict(kept)
optimizer = torch.optim.SGD(model.parameters(), lr=min(best, 0.1), momentum=0.9)
mark("found")
for step in range(150):
    loss = update(model, optimizer)
print(loss)
