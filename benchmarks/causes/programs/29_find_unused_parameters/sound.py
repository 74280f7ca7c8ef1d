"""A small network with short steps under DDP; no parameter is ever unused."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 3_000


class Block(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x)) * self.scale
        return x


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    body = nn.Sequential(*[Block() for _ in range(1)], nn.Linear(16, 1))
    model = DistributedDataParallel(body)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        values = torch.randn(16, 16)
        loss = (model(values).squeeze(1) - values[:, 0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 300 == 0 and rank == 0:
            print(step, loss.item())
    dist.destroy_process_group()


main()
