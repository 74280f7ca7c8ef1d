"""A compiled training step and an evaluation of the same model every 20 steps."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from own_clock import clock
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(
    *[layer for _ in range(4) for layer in (nn.Linear(512, 512), nn.GELU(), nn.LayerNorm(512))],
    nn.Linear(512, 10),
)
model = torch.compile(net)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
for i in range(300):
    with clock.part("step"):
        x, y = torch.randn(128, 512), torch.randint(0, 10, (128,))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if i % 20 == 19:
        with clock.part("evaluation"), torch.no_grad():
            net.eval()
            for _ in range(12):
                model(torch.randn(128, 512)).argmax(1).sum().item()
            net.train()
