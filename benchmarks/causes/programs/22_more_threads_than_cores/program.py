"""A small network; the number of threads comes from the machine where it was written."""

import torch
from torch import nn

STEPS = 300


def main():
    torch.set_num_threads(16)
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.GELU())]
    model = nn.Sequential(*layers, nn.Linear(256, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        values = torch.randn(384, 256)
        labels = values[:, :8].argmax(1)
        loss = nn.functional.cross_entropy(model(values), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


main()
