"""OneCycle and a moving average of the weights, which is evaluated every 25 steps."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from own_clock import clock
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 24, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(24, 24, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(4),
    nn.Flatten(),
    nn.Linear(384, 10),
)
average = torch.optim.swa_utils.AveragedModel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=200)
for i in range(200):
    with clock.part("step"):
        x, y = torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        average.update_parameters(net)
    if i % 25 == 24:
        with clock.part("evaluation"), torch.no_grad():
            for _ in range(20):
                average(torch.randn(16, 3, 32, 32)).argmax(1).sum().item()
