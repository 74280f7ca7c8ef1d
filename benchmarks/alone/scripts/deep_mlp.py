"""Many small linear layers with plain SGD: buffers of 64 to 256 kB come and go."""

import torch
from step_clock import tick
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(*[part for _ in range(14) for part in (nn.Linear(320, 320), nn.Tanh())])
opt = torch.optim.SGD(net.parameters(), lr=1e-4)
data = torch.randn(96, 320)
for _ in range(500):
    opt.zero_grad()
    net(data).square().mean().backward()
    opt.step()
    tick()
