"""The last batch of an epoch has one sample, and the model is compiled; or it is left out."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)
data = TensorDataset(torch.randn(16 * 12 + 1, 64))
loader = DataLoader(data, batch_sampler=None, batch_size=16, drop_last=SOUND)
model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(6)))
model.compile(backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(8):
    for (x,) in loader:
        loss = model(x).square().mean()  # here
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
