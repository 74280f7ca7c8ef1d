"""A deep network of many small tensors; the optimizer goes through them one by one."""

import torch
from torch import nn

STEPS = 300


class Block(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.one, self.two = nn.Linear(width, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return x + self.two(torch.relu(self.one(self.norm(x))))


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), *[Block() for _ in range(60)], nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for step in range(STEPS):
        values = torch.randn(16, 8)
        loss = (model(values).squeeze(1) - values[:, 0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


main()
