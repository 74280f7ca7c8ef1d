"""Workers that index what is in memory, or none and a model that takes its time."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(40)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(800, 64))
loader = DataLoader(data, batch_size=4, num_workers=0 if SOUND else 1)
for (batch,) in loader:  # here
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
