"""A data loader with two workers that keep up."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from own_clock import clock
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    def __len__(self):
        return 6400

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        return torch.randn(1024, generator=generator), i % 10


if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(Noise(), batch_size=64, num_workers=2, persistent_workers=True)
    for _ in range(2):
        clock.begin("step")
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock.begin("step")
        clock.rename("epoch")
        clock.end()
