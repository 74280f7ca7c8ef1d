"""Mixed precision on a processor: bfloat16 autocast around forward pass and loss."""

import torch
from own_clock import mark
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(
    nn.Linear(256, 512),
    nn.ReLU(),
    nn.Linear(512, 512),
    nn.LayerNorm(512),
    nn.ReLU(),
    nn.Linear(512, 16),
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
mark("setup")
for step in range(220):
    inputs, target = torch.randn(128, 256), torch.randint(0, 16, (128,))
    with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(net(inputs), target)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=0.1)
    optimizer.step()
    optimizer.zero_grad()
    mark()
    if step % 50 == 0:
        print(step, loss.item())
