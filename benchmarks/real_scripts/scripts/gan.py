"""A GAN: discriminator and generator in turns, an optimizer each."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from own_clock import clock
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 784), nn.Tanh())
D = nn.Sequential(nn.Linear(784, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1))
g_optimizer = torch.optim.Adam(G.parameters(), lr=2e-4)
d_optimizer = torch.optim.Adam(D.parameters(), lr=2e-4)
criterion = nn.BCEWithLogitsLoss()
for i in range(300):
    with clock.part("step"):
        real = torch.randn(64, 784)
        fake = G(torch.randn(64, 64))
        d_loss = criterion(D(real), torch.ones(64, 1))
        d_loss = d_loss + criterion(D(fake.detach()), torch.zeros(64, 1))
        d_optimizer.zero_grad()
        d_loss.backward()
        d_optimizer.step()
        g_loss = criterion(D(fake), torch.ones(64, 1))
        g_optimizer.zero_grad()
        g_loss.backward()
        g_optimizer.step()
    if i % 50 == 0:
        print(i, d_loss.item(), g_loss.item())
