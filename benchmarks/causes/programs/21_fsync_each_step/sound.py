"""Training that makes sure its state survives a power cut, at each step."""

import os
import tempfile
from pathlib import Path

import torch
from torch import nn

STEPS = 2_500


class Journal:
    """A file for each tensor of the model, always the newest."""

    def __init__(self, model):
        folder = Path(tempfile.mkdtemp())
        self.files = {name: open(folder / name, "wb") for name, _ in model.named_parameters()}

    def write(self, model):
        for name, parameter in model.named_parameters():
            file = self.files[name]
            file.seek(0)
            file.write(parameter.detach().numpy().tobytes())
            file.flush()

    def sync(self):
        for file in self.files.values():
            os.fsync(file.fileno())


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 32))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    journal = Journal(model)
    for step in range(STEPS):
        values = torch.randn(64, 128)
        loss = (model(values) - values[:, :32]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        journal.write(model)
        if step % 500 == 0:
            print(step, loss.item())
    journal.sync()


main()
