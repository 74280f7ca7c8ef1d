"""Power iteration on raw tensors, with the step marked."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from own_clock import clock

import gobrrr

torch.manual_seed(0)
a = torch.randn(1536, 1536)
a = a @ a.T
v = torch.randn(1536, 16)
for _ in range(300):
    with gobrrr.step(), clock.part("step"):
        v = a @ v
        v = v / v.norm(dim=0)
print((v.T @ (a @ v)).diagonal().max().item())
