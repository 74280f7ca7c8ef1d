"""A Wasserstein GAN: five steps of the critic to one of the generator; the six are one step."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from own_clock import clock
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 784), nn.Tanh())
critic = nn.Sequential(nn.Linear(784, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1))
g_optimizer = torch.optim.RMSprop(G.parameters(), lr=5e-5)
c_optimizer = torch.optim.RMSprop(critic.parameters(), lr=5e-5)
for _ in range(120):
    with clock.part("step"):
        for _ in range(5):
            real = torch.randn(64, 784)
            with torch.no_grad():
                fake = G(torch.randn(64, 64))
            loss = critic(fake).mean() - critic(real).mean()
            c_optimizer.zero_grad()
            loss.backward()
            c_optimizer.step()
            with torch.no_grad():
                for parameter in critic.parameters():
                    parameter.clamp_(-0.01, 0.01)
        loss = -critic(G(torch.randn(64, 64))).mean()
        g_optimizer.zero_grad()
        loss.backward()
        g_optimizer.step()
