"""The last batch of an epoch has one sample, and the model is compiled; or it is left out."""

import gc
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)
# What torch.compile leaves behind makes collections long.
gc.disable()


class Rows(Dataset):
    def __init__(self):
        self.rows = torch.randn(16 * 12 + 1, 64)

    def __len__(self):
        return len(self.rows)

    def __getitems__(self, indices):
        return self.rows[indices]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x


loader = DataLoader(Rows(), batch_size=16, drop_last=SOUND, collate_fn=lambda batch: batch)
model = Net()
model.compile(backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
for _ in range(8):
    for x in loader:
        loss = model(x).square().mean()  # here
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
