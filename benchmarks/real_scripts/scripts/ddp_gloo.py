"""Two ranks on gloo, a large model and a small batch. ``torchrun --nproc_per_node=2``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
import torch.distributed as dist
from own_clock import clock
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
torch.set_num_threads(1)
model = DistributedDataParallel(
    nn.Sequential(
        nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 2048), nn.GELU(), nn.Linear(2048, 10)
    )
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(120):
    with clock.part("step"):
        x, y = torch.randn(32, 512), torch.randint(0, 10, (32,))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.destroy_process_group()
