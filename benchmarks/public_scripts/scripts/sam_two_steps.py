"""Sharpness-aware minimisation: up to the worst point nearby, then down from there."""

import torch
from own_clock import mark
from torch import nn


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, **kwargs):
        super().__init__(params, {"rho": rho, **kwargs})
        self.base_optimizer = base(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self):
        for group in self.param_groups:
            norms = [p.grad.norm() for p in group["params"] if p.grad is not None]
            scale = group["rho"] / (torch.stack(norms).norm() + 1e-12)
            for p in group["params"]:
                self.state[p]["e_w"] = p.grad * scale
                p.add_(self.state[p]["e_w"])
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(self.state[p]["e_w"])
        self.base_optimizer.step()
        self.zero_grad()


torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 24, 3, 2, 1),
    nn.ReLU(),
    nn.Conv2d(24, 48, 3, 2, 1),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(48 * 64, 10),
)
optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.05, momentum=0.9)
mark("setup")
for step in range(130):
    inputs, targets = torch.rand(32, 3, 32, 32), torch.randint(0, 10, (32,))
    loss = nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.first_step()
    nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.second_step()
    mark()
    if step % 30 == 0:
        print(step, loss.item())
