"""A compiled training step of a small network."""

import torch
from own_clock import mark
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(256, 512), nn.Linear(512, 512), nn.Linear(512, 8)

    def forward(self, x):
        x = torch.sin(self.one(x)) * 0.5 + torch.cos(x.sum(1, keepdim=True))
        return self.head(nn.functional.gelu(self.two(x)))


torch.manual_seed(0)
model = Net()
compiled = torch.compile(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
mark("setup")
for step in range(400):
    x, y = torch.randn(128, 256), torch.randint(0, 8, (128,))
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.cross_entropy(compiled(x), y)
    loss.backward()
    optimizer.step()
    mark()
    if step % 100 == 0:
        print(step, loss.item())
