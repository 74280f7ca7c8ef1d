"""Samples of a TensorDataset, one by one or a batch at once."""

import sys

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(16384, 64))
if SOUND:
    batches = BatchSampler(RandomSampler(data), 256, drop_last=False)
    loader = DataLoader(data, batch_size=None, sampler=batches)
else:
    loader = DataLoader(data, batch_size=256, shuffle=True)
for _ in range(2):
    for (batch,) in loader:  # here
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
