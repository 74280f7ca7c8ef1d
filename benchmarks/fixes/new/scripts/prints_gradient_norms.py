"""A training loop that writes the norm of each gradient at every step."""

import sys

import torch
from torch import nn

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
torch.manual_seed(0)
model = nn.Sequential(
    *(nn.Sequential(nn.Linear(52, 52), nn.Mish()) for _ in range(14)), nn.Linear(52, 8)
)
optimizer = torch.optim.SGD(model.parameters(), 1e-2, foreach=True)
x, y = torch.randn(20, 52), torch.randint(8, (20,))
for step in range(STEPS):
    optimizer.zero_grad()
    output = model(x)
    loss = nn.functional.cross_entropy(output, y)
    loss.backward()
    for name, parameter in model.named_parameters():
        mean, deviation = parameter.grad.mean().item(), parameter.grad.std().item()  # flaw
        norm = parameter.grad.norm().item()  # flaw
        print(f"{step} {name}: {norm:.3g} ({mean:.3g} +- {deviation:.3g})")  # flaw
    optimizer.step()
