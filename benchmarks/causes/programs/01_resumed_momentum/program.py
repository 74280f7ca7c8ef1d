"""Goes on with a recommender whose optimizer state comes from a long first phase."""

import torch
from torch import nn

STEPS = 260


def first_phase(table):
    """Most items were seen once, early; their momentum has decayed since."""
    moments = torch.randn(table.shape) * 1e-6
    moments *= 0.9**750
    return moments


def main():
    torch.manual_seed(0)
    items = nn.Embedding(60_000, 64)
    head = nn.Linear(64, 1)
    parameters = [*items.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
    optimizer.state[items.weight]["momentum_buffer"] = first_phase(items.weight)
    loss_of = nn.BCEWithLogitsLoss()
    for step in range(STEPS):
        chosen = torch.randint(0, 2_000, (512,))
        wanted = (chosen % 2).float()
        loss = loss_of(head(items(chosen)).squeeze(1), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


main()
