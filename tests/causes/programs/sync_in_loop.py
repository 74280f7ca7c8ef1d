"""A table of hits that is counted value by value, or by one op."""

import sys

import torch
from torch import nn

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)


def hits(scores, wanted):
    best = scores.argmax(-1)
    if SOUND:
        return (best == wanted).sum().item()
    total = 0
    for row in range(len(best)):
        total += best[row].item() == wanted[row].item()  # here
    return total


model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(80):
    wanted = torch.randint(64, (128,))
    scores = model(torch.randn(128, 64))
    loss = nn.functional.cross_entropy(scores, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    hits(scores.detach(), wanted)
