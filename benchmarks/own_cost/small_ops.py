"""A training script whose step has many small ops: the program under test of ``run.py``.

``python benchmarks/own_cost/small_ops.py OPS STEPS``: of 20,000 ops 95 steps take about 4 s.
"""

import sys

import torch

ops, steps = int(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(0)
x, weight = torch.randn(8), torch.randn(8, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=1e-3)
for _ in range(steps):
    y = x
    with torch.no_grad():
        for _ in range(ops // 2):
            y = (y * 0.5).add_(x)
    optimizer.zero_grad()
    (weight * y).sum().backward()
    optimizer.step()
