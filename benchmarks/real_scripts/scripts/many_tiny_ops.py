"""A physics loop of small tensors with gradients: hundreds of ops on a few numbers."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from own_clock import clock

torch.manual_seed(0)
stiffness = torch.rand(16, requires_grad=True)
optimizer = torch.optim.Adam([stiffness], lr=1e-2)
for _ in range(250):
    with clock.part("step"):
        position, speed = torch.linspace(0, 1, 17), torch.zeros(17)
        for _ in range(20):
            force = stiffness * (position[1:] - position[:-1] - 0.05)
            pull = torch.nn.functional.pad(force, (0, 1)) - torch.nn.functional.pad(force, (1, 0))
            speed = speed * 0.99 + 0.01 * pull
            position = position + 0.01 * speed
        loss = (position - torch.linspace(0, 1.2, 17)).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
