"""Large matrix products; the launcher has set OMP_NUM_THREADS=1, as torchrun does."""

import torch
from torch import nn

STEPS = 45


def main():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(1_024, 2_048),
        nn.ReLU(),
        nn.Linear(2_048, 2_048),
        nn.ReLU(),
        nn.Linear(2_048, 128),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        values = torch.randn(1_024, 1_024)
        labels = values[:, :128].argmax(1)
        loss = nn.functional.cross_entropy(model(values), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, loss.item())


main()
