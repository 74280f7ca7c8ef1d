"""Training under bfloat16 autocast, switched on because it is faster on the cluster."""

import torch
from torch import nn

STEPS = 600


def main():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(256, 1_024), nn.GELU(), nn.Linear(1_024, 1_024), nn.GELU(), nn.Linear(1_024, 10)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        values = torch.randn(256, 256)
        labels = (values[:, 0] > 0).long()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores = model(values)
        loss = nn.functional.cross_entropy(scores.float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, loss.item())


main()
