"""A policy of a few hundred weights: a step is Python and dispatch."""

import torch
from step_clock import tick
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
state, action = torch.randn(32, 4), torch.randint(0, 2, (32,))
for _ in range(4000):
    loss = nn.functional.cross_entropy(policy(state), action)
    opt.zero_grad()
    loss.backward()
    opt.step()
    tick()
