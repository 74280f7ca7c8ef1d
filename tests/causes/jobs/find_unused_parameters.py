"""A search for unused parameters of which there are none, or no search. Two ranks."""

import sys

import torch
import torch.distributed as dist
from torch import nn

SOUND = "--sound" in sys.argv
dist.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(0)
layers = (layer for _ in range(60) for layer in (nn.Linear(16, 16), nn.LayerNorm(16), nn.ReLU()))
body = nn.Sequential(*layers)
if SOUND:
    model = nn.parallel.DistributedDataParallel(body)
else:
    model = nn.parallel.DistributedDataParallel(body, find_unused_parameters=True)  # here
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(80):
    loss = model(torch.randn(8, 16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
