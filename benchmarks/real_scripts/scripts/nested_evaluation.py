"""Eight training steps, then forty batches of evaluation, again and again."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from own_clock import clock
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(
    nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def evaluate():
    net.eval()
    correct = 0
    with torch.no_grad():
        for _ in range(40):
            predicted = net(torch.randn(64, 256)).argmax(1)
            correct += (predicted == torch.randint(0, 10, (64,))).sum().item()
    net.train()
    return correct


for _ in range(30):
    for _ in range(8):
        with clock.part("step"):
            x, y = torch.randn(64, 256), torch.randint(0, 10, (64,))
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with clock.part("evaluation"):
        evaluate()
