"""A thread that computes in Python, or sleeps."""

import sys
import threading
import time

import torch
from torch import nn

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)


def featurize():  # begins
    total = 0
    while True:
        if SOUND:
            time.sleep(0.02)
        for k in range(1 if SOUND else 1000):
            total += k * k % 7  # here


threading.Thread(target=featurize, daemon=True).start()
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(160):
    loss = model(torch.randn(32, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
