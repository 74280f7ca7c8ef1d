"""A training loop whose data set takes as long as its step: nothing loads in between."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    """Each item waits as a file on a network would let it wait."""

    def __len__(self):
        return 20000

    def __getitem__(self, index):
        time.sleep(0.0005)
        return torch.full((128,), (index % 7) / 7.0), index % 10


torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 1e-2)
for x, y in DataLoader(Slow(), batch_size=16):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
