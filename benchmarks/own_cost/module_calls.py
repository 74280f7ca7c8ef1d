"""A script whose step calls a module so many times, ever another number of them.

python benchmarks/own_cost/module_calls.py CALLS
"""

import random
import sys

import torch
from torch import nn

STEPS = 120
calls = int(sys.argv[1])
random.seed(0)
torch.manual_seed(0)
policy = nn.Linear(4, 2)
optimizer = torch.optim.SGD(policy.parameters(), lr=1e-3)
for _ in range(STEPS):
    length = random.randint(calls * 9 // 10, calls)
    loss = sum(policy(torch.ones(4)).sum() for _ in range(length))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
