"""A classifier that keeps a histogram of each weight and gradient, as summary writers do."""

import numpy as np
import torch
from torch import nn

STEPS, EVERY = 250, 50


class Summary:
    def __init__(self):
        self.kept = []

    def add_histogram(self, tag, values, step):
        flat = values.detach().cpu().numpy().ravel()
        counts, edges = np.histogram(flat, bins=512)
        self.kept.append((tag, step, counts, edges, float(flat.min()), float(flat.max())))


def main():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 512),
        nn.ReLU(),
        nn.Linear(512, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    summary = Summary()
    for step in range(STEPS):
        images = torch.rand(512, 1, 28, 28)
        labels = torch.randint(0, 10, (512,))
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % EVERY == 0:
            for name, parameter in model.named_parameters():
                summary.add_histogram(f"weights/{name}", parameter, step)
                summary.add_histogram(f"gradients/{name}", parameter.grad, step)
    print(loss.item(), len(summary.kept))


main()
