"""A transformer whose dropout takes a large part of its step."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from own_clock import clock
from torch import nn

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.1, batch_first=True)
net = nn.TransformerEncoder(layer, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(200):
    with clock.part("step"):
        x = torch.randn(8, 96, 128)
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
