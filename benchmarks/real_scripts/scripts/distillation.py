"""A student learns from a teacher that runs without gradients in every step."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from own_clock import clock
from torch import nn

torch.manual_seed(0)
teacher = nn.Sequential(nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 100)).eval()
student = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 100))
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
for _ in range(300):
    with clock.part("step"):
        x = torch.randn(128, 256)
        with torch.no_grad():
            wanted = teacher(x).softmax(-1)
        loss = nn.functional.cross_entropy(student(x), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
