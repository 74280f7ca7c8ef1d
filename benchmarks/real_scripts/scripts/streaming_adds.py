"""A simulation that streams arrays larger than any cache: a few adds a step, marked."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from own_clock import clock

import gobrrr

torch.manual_seed(0)
a, b = torch.randn(12_000_000), torch.randn(12_000_000)
for _ in range(120):
    with gobrrr.step(), clock.part("step"):
        a.add_(b, alpha=0.5)
        b.mul_(0.999)
