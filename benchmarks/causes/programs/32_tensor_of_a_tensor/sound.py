"""Losses of examples are wrapped anew with torch.tensor, a list of tensors at a time."""

import torch
from torch import nn

STEPS, BATCH = 900, 256


def weights_of(history, indices):
    """Examples that were hard lately count more."""
    recent = history[indices]
    return torch.softmax(recent, 0) * len(recent)


def main():
    torch.manual_seed(0)
    values = torch.randn(20_000, 64)
    labels = (values[:, 0] > 0).long()
    history = torch.zeros(20_000)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        indices = torch.randint(0, 20_000, (BATCH * 8,))
        weights = weights_of(history, indices)
        x = values[indices]
        each = nn.functional.cross_entropy(model(x), labels[indices], reduction="none")
        loss = (each * weights).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history[indices] = each.detach()
        if step % 50 == 0:
            print(step, loss.item())


main()
