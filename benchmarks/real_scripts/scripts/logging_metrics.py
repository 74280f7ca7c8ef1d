"""Every fifth step logs norms and histograms of all weights, as an experiment tracker does."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import io
import json

import torch
from own_clock import clock
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(256, 256), nn.Tanh())])
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
log = io.StringIO()
for i in range(300):
    with clock.part("step"):
        x = torch.randn(128, 256)
        loss = (net(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if i % 5 == 4:
        with clock.part("logging"), torch.no_grad():
            row = {"loss": loss.item()}
            for name, parameter in net.named_parameters():
                row[name] = parameter.norm().item()
                row[f"{name}.hist"] = torch.histc(parameter, 64).tolist()
                row[f"{name}.sorted"] = parameter.flatten().sort().values[::100].tolist()
            log.write(json.dumps(row) + "\n")
