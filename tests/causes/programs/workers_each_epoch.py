"""Workers that are started in each epoch of four steps."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)


class Pictures(Dataset):
    def __init__(self):
        self.pictures = torch.rand(32, 64)

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, i):
        return self.pictures[i].flip(-1)


model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Pictures(), batch_size=8, num_workers=1, persistent_workers=SOUND)
for _ in range(12):
    for batch in loader:  # here
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
