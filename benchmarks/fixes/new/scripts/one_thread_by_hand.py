"""A line from a debugging session: one thread."""

import sys

import torch
from torch import nn

torch.set_num_threads(1)  # flaw
STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 40, 5, padding=2), nn.ReLU(), nn.Conv2d(40, 56, 3, stride=2, padding=1),
    nn.ReLU(), nn.Conv2d(56, 56, 3, stride=2, padding=1), nn.Flatten(), nn.Linear(56 * 144, 11),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), 1e-3, foreach=True)
x, y = torch.randn(10, 3, 48, 48), torch.randint(11, (10,))
for _ in range(STEPS):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
