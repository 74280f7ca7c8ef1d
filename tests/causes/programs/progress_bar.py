"""A bar that is drawn in each step, or once a second."""

import sys

import torch
from torch import nn
from tqdm import tqdm

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
bar = tqdm(range(800), mininterval=1.0 if SOUND else 0.0, miniters=None if SOUND else 1)
for step in bar:
    loss = model(torch.randn(32, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for _ in range(0 if SOUND else 5):
        bar.set_postfix(step=step)  # here
