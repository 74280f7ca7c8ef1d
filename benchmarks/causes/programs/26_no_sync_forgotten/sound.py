"""Data parallel training with gradient accumulation."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, PARTS = 40, 8


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(512, 2_048), nn.ReLU(), nn.Linear(2_048, 512))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in range(PARTS):
            values = torch.randn(16, 512)
            last = part == PARTS - 1
            with contextlib.nullcontext() if last else model.no_sync():
                loss = (model(values) - values).square().mean() / PARTS
                loss.backward()
        optimizer.step()
        if step % 10 == 0 and rank == 0:
            print(step, part, loss.item())
    dist.destroy_process_group()


main()
