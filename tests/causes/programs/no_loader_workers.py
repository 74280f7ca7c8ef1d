"""A data set that computes its samples while the step waits; a cheap one."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)
COUNT = 64 if SOUND else 12_800


class Sequences(Dataset):
    def __len__(self):
        return 480

    def __getitem__(self, i):
        return torch.tensor([i * k % 97 for k in range(COUNT)][:64]) / 97  # here


model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(12)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in DataLoader(Sequences(), batch_size=8):
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
