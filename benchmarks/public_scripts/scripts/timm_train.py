"""Mixup, label smoothing, accumulation, a cosine schedule and averaged weights."""

import copy
import math

import torch
from own_clock import mark
from torch import nn


class ConvBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv_dw = nn.Conv2d(width, width, 5, padding=2, groups=width)
        self.norm = nn.BatchNorm2d(width)
        self.fc1, self.fc2 = nn.Conv2d(width, 2 * width, 1), nn.Conv2d(2 * width, width, 1)

    def forward(self, x):
        y = self.fc2(nn.functional.gelu(self.fc1(self.norm(self.conv_dw(x)))))
        return x + y


class ModelEma(nn.Module):
    def __init__(self, model, decay=0.99):
        super().__init__()
        self.module, self.decay = copy.deepcopy(model).eval(), decay

    @torch.no_grad()
    def update(self, model):
        for kept, new in zip(self.module.state_dict().values(), model.state_dict().values()):
            kept.copy_(self.decay * kept + (1.0 - self.decay) * new)


def mixup(x, target, classes=10):
    lam = torch.distributions.Beta(0.8, 0.8).sample().item()
    one = torch.full((len(x), classes), 0.01).scatter_(1, target[:, None], 0.91)
    return x * lam + x.flip(0) * (1 - lam), one * lam + one.flip(0) * (1 - lam)


torch.manual_seed(42)
model = nn.Sequential(
    nn.Conv2d(3, 32, 4, 4),
    ConvBlock(32),
    ConvBlock(32),
    nn.Conv2d(32, 64, 2, 2),
    ConvBlock(64),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(64, 10),
)
ema = ModelEma(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
updates, accumulation = 80, 2
mark("setup")
for update in range(updates):
    for group in optimizer.param_groups:
        group["lr"] = 5e-4 * (1 + math.cos(math.pi * update / updates))
    for _ in range(accumulation):
        x, target = mixup(torch.rand(16, 3, 64, 64), torch.randint(0, 10, (16,)))
        loss = nn.functional.cross_entropy(model(x), target) / accumulation
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    ema.update(model)
    optimizer.zero_grad()
    mark()
    if update % 20 == 0:
        print(update, loss.item())
