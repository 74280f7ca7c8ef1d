"""A generator and a discriminator with an optimizer each: a step is one of both."""

import torch
from step_clock import tick
from torch import nn

torch.manual_seed(0)
make = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 784), nn.Tanh())
judge = nn.Sequential(nn.Linear(784, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1))
opt_make, opt_judge = (
    torch.optim.Adam(make.parameters(), 2e-4),
    torch.optim.Adam(judge.parameters(), 2e-4),
)
right, wrong = torch.ones(64, 1), torch.zeros(64, 1)
bce = nn.functional.binary_cross_entropy_with_logits
for _ in range(400):
    real, fake = torch.rand(64, 784), make(torch.randn(64, 64))
    loss = bce(judge(real), right) + bce(judge(fake.detach()), wrong)
    opt_judge.zero_grad()
    loss.backward()
    opt_judge.step()
    loss = bce(judge(fake), right)
    opt_make.zero_grad()
    loss.backward()
    opt_make.step()
    tick()
