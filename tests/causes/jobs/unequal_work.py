"""Sentences whose lengths differ between two ranks at each step, or are alike."""

import random
import sys

import torch
import torch.distributed as dist
from torch import nn

SOUND = "--sound" in sys.argv
dist.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(1 if SOUND else 1 + dist.get_rank())
body = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 128))
model = nn.parallel.DistributedDataParallel(body)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(80):
    length = random.choice((64, 2048))
    loss = model(torch.randn(length, 128)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
