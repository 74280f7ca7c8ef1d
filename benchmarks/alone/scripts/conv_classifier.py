"""A small convolutional classifier whose activations are freed at the end of each step."""

import torch
from step_clock import tick
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 24, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(24, 24, 3, padding=1),
    nn.BatchNorm2d(24),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(24, 10),
)
opt = torch.optim.AdamW(net.parameters())
for _ in range(180):
    images = torch.randn(16, 3, 56, 56)
    opt.zero_grad()
    nn.functional.cross_entropy(net(images), torch.randint(0, 10, (16,))).backward()
    opt.step()
    tick()
