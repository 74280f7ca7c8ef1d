"""Four micro-batches whose gradients are averaged one by one, or once. Two ranks."""

import contextlib
import sys

import torch
import torch.distributed as dist
from torch import nn

SOUND = "--sound" in sys.argv
dist.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(0)
body = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 512))
model = nn.parallel.DistributedDataParallel(body)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(60):
    for part in range(4):
        with model.no_sync() if SOUND and part < 3 else contextlib.nullcontext():
            loss = model(torch.randn(8, 64)).square().mean() / 4
            loss.backward()  # here
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
