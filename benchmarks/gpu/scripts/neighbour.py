"""Products without end on a device; a file ``busy`` says that they have begun."""

import os
from pathlib import Path

import torch
from step_clock import ready

ready()
device = os.environ.get("DEVICE", "cuda")
side = 64 if os.environ.get("SMALL") else 4096
a = torch.randn(side, side, device=device)
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(20):
        a @ a
    if device != "cpu":
        torch.cuda.synchronize()
    Path("busy").touch()
