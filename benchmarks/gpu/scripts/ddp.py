"""Data-parallel training by torchrun; ``BACKEND`` is nccl, or gloo where ranks share a GPU."""

import os

import torch
import torch.distributed as dist
from step_clock import ready
from torch import nn
from torch.nn.parallel import DistributedDataParallel

device, small = os.environ.get("DEVICE", "cuda"), bool(os.environ.get("SMALL"))
ready()
dist.init_process_group(os.environ.get("BACKEND", "nccl"))
torch.manual_seed(0)
if device != "cpu":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
width = 64 if small else 1024
layers = [layer for _ in range(6) for layer in (nn.Linear(width, width), nn.GELU())]
model = DistributedDataParallel(nn.Sequential(*layers).to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
batch = 16 if small else 8192
for _ in range(int(os.environ.get("STEPS", "80"))):
    x = torch.randn(batch, width, device=device)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: loss {loss.item():.4f}")
dist.destroy_process_group()
