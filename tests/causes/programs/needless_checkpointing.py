"""Blocks that are checkpointed although they are small, or not."""

import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)
blocks = nn.ModuleList(
    nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128)) for _ in range(6)
)
optimizer = torch.optim.SGD(blocks.parameters(), lr=0.01)
for _ in range(80):
    x = torch.randn(64, 128).requires_grad_()
    for block in blocks:
        x = block(x) if SOUND else checkpoint(block, x, use_reentrant=False)  # here
    loss = x.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
