"""Adversarial training: the inputs are attacked by projected gradient descent first."""

import torch
import torch.nn.functional as F
from own_clock import mark
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 5, 2, 2), nn.Conv2d(16, 32, 5, 2, 2)
        self.fc = nn.Linear(32 * 49, 10)

    def forward(self, x):
        return self.fc(F.relu(self.conv2(F.relu(self.conv1(x)))).flatten(1))


def attack(model, x, y, eps=0.3, alpha=0.1, steps=5):
    delta = torch.empty_like(x).uniform_(-eps, eps)
    for _ in range(steps):
        delta.requires_grad_(True)
        loss = F.cross_entropy(model(x + delta), y)
        (gradient,) = torch.autograd.grad(loss, delta)
        delta = (delta.detach() + alpha * gradient.sign()).clamp(-eps, eps)
    return (x + delta).clamp(0, 1)


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
mark("setup")
for step in range(90):
    x, y = torch.rand(64, 1, 28, 28), torch.randint(0, 10, (64,))
    model.eval()
    hostile = attack(model, x, y)
    model.train()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(hostile), y)
    loss.backward()
    optimizer.step()
    mark()
    if step % 20 == 0:
        print(step, loss.item())
