"""Training that makes sure its state survives a power cut, at each step."""

import os
import tempfile
from pathlib import Path

import torch
from torch import nn

STEPS = 500


class Journal:
    def __init__(self):
        self.file = open(Path(tempfile.mkdtemp()) / "journal.bin", "wb")

    def write(self, model, loss):
        self.file.seek(0)
        for parameter in model.parameters():
            self.file.write(parameter.detach().numpy().tobytes())
        self.file.write(str(loss.item()).encode())
        self.file.flush()

    def sync(self):
        os.fsync(self.file.fileno())


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 1_024), nn.ReLU(), nn.Linear(1_024, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    journal = Journal()
    for step in range(STEPS):
        values = torch.randn(256, 256)
        loss = (model(values) - values[:, :64]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        journal.write(model, loss)
        if step % 100 == 0:
            print(step, loss.item())
    journal.sync()


main()
